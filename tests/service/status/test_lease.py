"""The Lease: renewed through everything, never older than two renewal intervals."""

from pathlib import Path
from typing import NoReturn

import pytest

from services.status.controllers.node import Node
from shared.kube import paths
from shared.time.timestamps import parse_rfc3339
from tests.fakes.api_server import FakeClient, Received
from tests.fakes.memory_bus import ManualClock
from tests.service.status.node_stage import LEASE, NAME, NODE, NodeStage, node_stage

pytestmark = pytest.mark.virtual_time

INTERVAL = 10.4


@pytest.mark.long
async def test_the_lease_belongs_to_the_node_and_is_renewed_every_ten_seconds(stage: NodeStage) -> None:
    await stage.start()
    await stage.until(lambda: stage.lease, within=2)
    await stage.pass_time(300)
    lease = stage.lease
    owner = {"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": stage.node["metadata"]["uid"]}
    assert lease["metadata"]["ownerReferences"] == [owner]
    assert lease["spec"].keys() == {"holderIdentity", "leaseDurationSeconds", "renewTime"}
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == (NAME, 40)
    assert 28 <= _renewals(stage) <= 31
    assert max(stage.lease_ages) < INTERVAL


@pytest.mark.long
async def test_the_beat_carries_the_time_of_the_last_renewal(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(60)
    stage.api.down()
    failed_at = stage.clock.monotonic()
    await stage.pass_time(30)
    assert failed_at - INTERVAL <= stage.beats["status"].progress["lease"] <= failed_at


async def test_without_a_node_there_is_no_lease(tmp_path: Path) -> None:
    async with node_stage(tmp_path, register_node=False) as stage:
        await stage.start()
        await stage.pass_time(25)
        assert stage.lease == {}


@pytest.mark.long
async def test_kills_of_status_itself_leave_no_gap(stage: NodeStage) -> None:
    for number in range(8):
        await stage.start()
        await stage.pass_time(3 + 2 * number)
        await stage.kill()
        await stage.pass_time(2)
    assert max(stage.lease_ages) < INTERVAL + 2


@pytest.mark.long
async def test_it_depends_on_no_other_process(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(5)
    for name in list(stage.buses):
        if name != "server":
            stage.network.kill(name)
    await stage.pass_time(120)
    assert max(stage.lease_ages) < INTERVAL
    assert not stage.ready()


async def test_a_bug_in_the_node_status_does_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Node) -> NoReturn:
        raise KeyError("metadata")

    async with node_stage(tmp_path) as stage:
        await stage.start()
        await stage.pass_time(5)
        monkeypatch.setattr(Node, "_pause", broken)
        await stage.pass_time(100)
        assert max(stage.lease_ages) < INTERVAL
        monkeypatch.undo()
        await stage.pass_time(70)
        assert stage.ready()


@pytest.mark.long
async def test_slow_writes_stay_within_two_intervals(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(5)
    stage.api.slow(9)
    await stage.pass_time(200)
    assert max(stage.lease_ages) < 2 * INTERVAL


@pytest.mark.long
async def test_after_an_outage_it_is_renewed_within_ten_seconds(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(30)
    stage.api.pause()
    await stage.pass_time(100)
    stage.api.down()
    stage.api.resume()
    await stage.pass_time(60)
    stage.api.up()
    before = stage.lease["spec"]["renewTime"]
    assert await stage.until(lambda: stage.lease["spec"]["renewTime"] != before, within=20) < 10


async def test_a_lease_that_was_changed_or_removed_is_renewed_too(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(12)
    labelled = {**stage.lease["metadata"], "labels": {"a": "b"}}
    await stage.api.client().update(LEASE, {**stage.lease, "metadata": labelled})
    await stage.pass_time(21)
    assert stage.lease["metadata"]["labels"] == {"a": "b"}
    assert max(stage.lease_ages) < INTERVAL
    stage.api.delete(LEASE)
    await stage.until(lambda: stage.lease, within=INTERVAL)


@pytest.mark.parametrize("seconds", [20.0, 1000.0], ids=["slow", "never answered"])
async def test_after_a_conflict_one_slow_read_leaves_time_for_another_renewal(stage: NodeStage, seconds: float) -> None:
    await stage.start()
    await stage.pass_time(45)
    reads = 0

    def first_read(received: Received) -> float:
        nonlocal reads
        is_read = received.method == "GET" and received.path == LEASE
        reads += is_read
        return seconds if is_read and reads == 1 else 0.0

    stage.api.slow(first_read)
    body = {**stage.lease, "metadata": {**stage.lease["metadata"], "labels": {"a": "b"}}}
    await stage.api.client().update(LEASE, body)  # so that the next renewal conflicts once
    await stage.pass_time(100)
    assert reads == (1 if seconds == 20.0 else 2)
    assert 30 < max(stage.lease_ages) < 40


@pytest.mark.long
async def test_a_step_of_the_clock_changes_no_interval(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(30)
    for hours in (1, -2):
        stage.clock._wall += hours * 3600
        before = _renewals(stage)
        await stage.pass_time(51)
        assert _renewals(stage) - before == 5
        assert stage.ready()
    assert isinstance(stage.clock, ManualClock)


async def test_a_lease_without_an_owner_is_renewed_while_the_node_cannot_be_read(tmp_path: Path) -> None:
    async with node_stage(tmp_path, register_node=False) as stage:
        stage.api.put(LEASE, {"spec": {"holderIdentity": NAME, "renewTime": "2020-01-01T00:00:00.000000Z"}})
        await stage.start()
        await stage.pass_time(1)
        assert stage.lease["spec"]["renewTime"] > "2023"
        stage.api.put(NODE, {"metadata": {}})
        await stage.until(lambda: stage.lease["metadata"].get("ownerReferences"), within=3)


def _renewals(stage: NodeStage) -> int:
    return stage.api.requests.count(("PUT", LEASE)) + stage.api.requests.count(("POST", paths.LEASES))


async def test_the_connection_is_given_up_at_the_second_failure_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = 0
    drop_connections = FakeClient.drop_connections

    async def count_drop(client: FakeClient) -> None:
        nonlocal dropped
        dropped += 1
        await drop_connections(client)

    async with node_stage(tmp_path) as stage:
        await stage.start()
        await stage.pass_time(31)
        monkeypatch.setattr(FakeClient, "drop_connections", count_drop)
        body = {**stage.lease, "metadata": {**stage.lease["metadata"], "labels": {"a": "b"}}}
        await stage.api.client().update(LEASE, body)  # so that the next renewal conflicts once
        await stage.pass_time(11)
        assert dropped == 0


def _renewed_at(stage: NodeStage) -> float:
    return parse_rfc3339(stage.lease["spec"]["renewTime"]) or 0.0


async def test_it_is_renewed_at_once_after_a_suspension_of_the_machine_on_new_connections(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(60)
    dropped = stage.heartbeat.connections_dropped
    stage.suspend(8 * 3600)
    resumed_at = stage.clock.wall()
    await stage.pass_time(1)
    assert _renewed_at(stage) >= resumed_at
    assert stage.heartbeat.connections_dropped > dropped
    await stage.pass_time(60)
    assert max(stage.lease_ages[-30:]) < INTERVAL  # it goes on as before


async def test_a_renewal_on_a_connection_that_the_suspension_has_cut_is_given_up(stage: NodeStage) -> None:
    await stage.start()
    await stage.pass_time(60)
    stage.api.slow(lambda received: 1000.0 if received.path == LEASE else 0.0)  # no answer comes any more
    await stage.pass_time(11)
    stage.api.slow(0.0)  # on a new connection one comes
    stage.suspend(3600)
    resumed_at = stage.clock.wall()
    await stage.pass_time(1)
    assert _renewed_at(stage) >= resumed_at
