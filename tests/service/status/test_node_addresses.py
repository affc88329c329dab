"""The Node shows the addresses that the machine and its resolver give, and waits for a slow resolver only at first."""

import pytest

from bus.messages.podsync import NodePressure
from services.status.core.node_facts import HostNetwork
from tests.service.status.node_stage import DISK_PRESSURE, NodeStage

pytestmark = pytest.mark.virtual_time


async def test_a_resolver_that_hangs_delays_the_first_status_alone(stage: NodeStage) -> None:
    stage.host.resolver_seconds = 15.0
    await stage.start()
    await stage.until(stage.ready, within=5)
    stage.pressure.put("node", NodePressure(conditions=(DISK_PRESSURE,)))
    assert await stage.until(lambda: stage.condition("DiskPressure")["status"] == "True", within=10) < 0.5
    assert "addresses" not in stage.node["status"]
    await stage.until(lambda: "addresses" in stage.node["status"], within=15)


async def test_addresses_that_a_slow_resolver_gives_are_shown_as_soon_as_it_answers(reported: NodeStage) -> None:
    stage = reported
    stage.host.resolver_seconds = 4.0
    stage.host.addresses = HostNetwork(assigned=frozenset({"192.0.2.8"}), default_routes=("192.0.2.8",))
    asked = len(stage.api.requests)
    taken = await stage.until(lambda: stage.node["status"]["addresses"][0]["address"] == "192.0.2.8", within=15)
    assert taken < 10.4 + 4.0
    await stage.pass_time(20)
    assert len(stage.node_requests(asked)) == 1


async def test_a_resolver_with_other_addresses_each_time_does_not_cause_a_status_without_end(
    reported: NodeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = reported
    looks: list[str] = []

    async def network(name: str) -> HostNetwork:
        looks.append(name)
        both = ("192.0.2.7", "192.0.2.8")
        return HostNetwork(assigned=frozenset(both), resolved=(both[len(looks) % 2],), default_routes=both[:1])

    monkeypatch.setattr(stage.host, "network", network)
    asked = len(stage.api.requests)
    await stage.pass_time(100)
    assert 8 <= len(looks) <= 11
    assert len(stage.node_requests(asked)) <= len(looks)


async def test_a_node_whose_addresses_cannot_be_read_keeps_those_known(
    reported: NodeStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = reported
    addresses = stage.node["status"]["addresses"]

    async def network(name: str) -> HostNetwork:
        raise OSError("no /proc")

    monkeypatch.setattr(stage.host, "network", network)
    await stage.pass_time(12)
    assert "the addresses of this machine cannot be read" in caplog.text
    monkeypatch.undo()
    stage.pressure.put("node", NodePressure(conditions=(DISK_PRESSURE,)))
    await stage.until(lambda: stage.condition("DiskPressure")["status"] == "True", within=10)
    assert stage.node["status"]["addresses"] == addresses
