"""volume is killed, and the machine boots again, beside the preparation of resource claims: nothing stays prepared for
nobody, nothing is lost, and what runs is not judged again."""

import asyncio
import errno
import json
import threading
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from bus.messages.resource_claims import ClaimState
from services.volume.adapters import claim_files
from services.volume.controllers import claim_work
from services.volume.controllers.resource_claims import ResourceClaims
from shared.files.atomic import write_atomically
from tests.programs.dra_driver import PREPARE, UNPREPARE
from tests.service.volume.claim_node import GPU, NIC, ClaimNode, until
from tests.support.waits.deadline import WAIT_SECONDS

POINTS = ("volume.claim.saved", "volume.claim.answered", "volume.claim.prepared", "volume.claim.unprepared")


async def prepared(node: ClaimNode, *claims: str) -> None:
    for claim in claims:
        node.put(claim, "u")
    node.admit("u", *claims)
    async with node.node.volume():
        await node.until_prepared("u")


async def test_a_prepared_claim_stays_through_a_restart_without_driver_and_api_server(node: ClaimNode) -> None:
    driver = node.started_driver()
    await prepared(node, "gpu")
    [claim] = node.node.claims.state["u"].claims
    driver.stop()
    driver.remove()
    node.silent = True
    async with node.node.volume():
        assert await node.until_prepared("u") == (claim,)
    assert driver.calls(PREPARE) == [["gpu"]] and node.read["gpu"] == 1


@pytest.mark.long
async def test_after_a_boot_claims_are_prepared_again_without_the_api_server(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = node.started_driver()
    await prepared(node, "gpu")
    driver.lose_cdi()
    node.silent = True
    monkeypatch.setattr(claim_files, "boot_id", lambda: "another boot")
    async with node.node.volume():
        await until(lambda: driver.calls(PREPARE) == [["gpu"], ["gpu"]])
        await node.until_prepared("u")
        assert list(driver.cdi.iterdir()) != []
    async with node.node.volume():  # in the same boot as before
        await node.until_prepared("u")
    assert len(driver.calls(PREPARE)) == 2


@pytest.mark.long
async def test_after_a_boot_a_pod_waits_for_its_driver(node: ClaimNode, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = node.started_driver()
    await prepared(node, "gpu")
    driver.stop()
    driver.remove()
    monkeypatch.setattr(claim_files, "boot_id", lambda: "another boot")
    async with node.node.volume():
        claim = await node.until_error("u")
        assert claim.error == f"prepare dynamic resources: DRA driver {GPU} is not registered"
        assert (claim.state, claim.devices) == (ClaimState.ERROR, ())
        node.started_driver(socket="second.sock")
        await node.until_prepared("u")


@pytest.mark.long
async def test_a_pod_that_ended_while_volume_was_away_is_unprepared_only_when_every_pod_is_known(
    node: ClaimNode,
) -> None:
    driver = node.started_driver()
    await prepared(node, "gpu")
    await node.node.podsync_restarts()
    async with node.node.volume():
        await node.until_prepared("u")
        node.put("other", "v")
        node.admit("v", "other")
        await node.until_prepared("v")
        assert driver.calls(UNPREPARE) == []
        node.node.admitted.mark_complete()
        await node.until_gone("u")
        assert driver.prepared() == {"uid-of-other": "other"}


async def test_a_pod_that_runs_keeps_a_claim_that_its_item_names_no_longer(node: ClaimNode) -> None:
    """podsync was restarted too, and has no status of the pod, in which its extended resources are."""
    driver = node.started_driver()
    node.put("extended", "u", owner="u")
    node.admit_extended("u", "extended", ("c", "r"))
    async with node.node.volume():
        await node.until_prepared("u")
    node.admit("u")
    async with node.node.volume():
        [claim] = await node.until_prepared("u")
        assert (claim.claim, claim.containers) == ("extended", {"c": ("r",)})
        node.put("other", "v")
        node.admit("v", "other")
        await node.until_prepared("v")
        assert driver.calls(UNPREPARE) == []
        node.end("u")
        await node.until_gone("u")
        assert driver.calls(UNPREPARE) == [["extended"]]


@pytest.mark.share(4)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("ends", [False, True])
async def test_a_kill_leaves_a_claim_prepared_where_a_pod_needs_it_and_else_not(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch, point: str, ends: bool
) -> None:
    """`ends`: the pod ends while volume is away."""
    driver, nic = node.started_driver(), node.started_driver(NIC)
    reached = asyncio.Event()

    async def nothing_more(_: ResourceClaims) -> None:
        await asyncio.Event().wait()

    def kill(name: str) -> None:
        if name == point:
            killed.setattr(ResourceClaims, "_turn", nothing_more)
            reached.set()
            raise asyncio.CancelledError

    node.put("gpu", "u", drivers=(GPU, NIC))
    node.admit("u", "gpu")
    with monkeypatch.context() as killed:
        killed.setattr(claim_work, "crash_point", kill)
        async with node.node.volume():
            if point == "volume.claim.unprepared":
                await node.until_prepared("u")
                node.end("u")
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
    if ends or point == "volume.claim.unprepared":
        node.end("u")
    async with node.node.volume():
        await node.node.claims.until_complete()
        if ends or point == "volume.claim.unprepared":
            await node.until_gone("u")
            await until(lambda: driver.prepared() == nic.prepared() == {})
            await until(lambda: json.loads(node.record.read_text())["claims"] == [])
        else:
            await node.until_prepared("u")
            assert driver.prepared() == nic.prepared() == {"uid-of-gpu": "gpu"}


@pytest.mark.share(4)
@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"boot": "b", "claims": [{"uid": 1}]}', b"\xff\xff", b'{"claims": 7}']
)
async def test_a_damaged_record_is_one_line_and_claims_of_pods_that_run_are_prepared_again(
    node: ClaimNode, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    driver = node.started_driver()
    await prepared(node, "gpu")
    node.record.write_bytes(content)
    async with node.node.volume():
        await until(lambda: len(driver.calls(PREPARE)) == 2)
        await node.until_prepared("u")
        [line] = [record.getMessage() for record in caplog.records if str(node.record) in record.getMessage()]
        assert "cannot be read" in line and "\n" not in line
        node.end("u")
        await node.until_gone("u")
        assert driver.prepared() == {}


@pytest.mark.long
async def test_without_a_record_no_driver_prepares_and_pods_still_end(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = node.started_driver()
    await prepared(node, "gpu")

    def full(path: Path, content: bytes, mode: int = 0o600) -> None:
        if path == node.record:
            raise OSError(errno.ENOSPC, "No space left on device")

    async with node.node.volume():
        with monkeypatch.context() as disk:
            disk.setattr(claim_files, "write_atomically", full)
            node.put("other", "v")
            node.admit("v", "other")
            claim = await node.until_error("v")
            line = f"{node.record}: cannot be written: No space left on device (free space or repair the file system)"
            assert claim.error == f"prepare dynamic resources: {line}"
            await node.node.until_troubles(line)
            node.end("u")
            await node.until_gone("u")
            assert (driver.prepared(), driver.calls(PREPARE)) == ({}, [["gpu"]])
        await node.until_prepared("v")
        await node.node.until_troubles()


@pytest.mark.parametrize("full", [False, True], ids=["a slow disk", "a full disk"])
async def test_a_claim_is_published_as_prepared_only_once_the_record_has_it_so(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    written, waiting = threading.Event(), threading.Event()

    def write(path: Path, content: bytes, mode: int = 0o600) -> None:
        if path == node.record and b'"state":"prepared"' in content and not written.is_set():
            waiting.set()
            if full:
                raise OSError(errno.ENOSPC, "No space left on device")
            written.wait(WAIT_SECONDS)
        write_atomically(path, content, mode)

    monkeypatch.setattr(claim_files, "write_atomically", write)
    driver = node.started_driver()
    node.put("gpu", "u")
    node.admit("u", "gpu")
    async with node.node.volume():
        try:
            await until(waiting.is_set)
            node.admit("w", "unknown")  # so that the claims of all pods are published again
            await node.until_error("w")
            states = {change.value.claims[0].state for change in node.node.claims.changes if hasattr(change, "value")}
            assert ClaimState.PREPARED not in states
        finally:
            written.set()
        await node.until_prepared("u")
        assert driver.calls(PREPARE) == [["gpu"]]


@pytest.mark.long
async def test_a_pod_that_is_ending_after_a_restart_keeps_its_claim_and_gets_no_other(node: ClaimNode) -> None:
    driver = node.started_driver()
    await prepared(node, "gpu")
    node.put("late", "w")
    async with node.node.volume():
        node.admit("u", "gpu", state=PodState.TERMINATING)
        node.admit("w", "late", state=PodState.TERMINATING)
        await node.node.claims.until(lambda state: state.keys() == {"u", "w"})
        await node.until_prepared("u")
        assert node.node.claims.state["w"].claims[0].state is ClaimState.PENDING
        node.end("w")
        await node.until_gone("w")
    assert driver.calls(PREPARE) == [["gpu"]]
