"""The published node has the machine's amounts and those of its device plugins, also while volume restarts."""

from collections.abc import AsyncIterator, Mapping

import pytest

from bus.interface import OwnedStream
from bus.messages.device_plugins import Device, DeviceResource
from bus.messages.podsync import NodeResources
from bus.messages.streams import DEVICES_RESOURCES, NODE_RESOURCES
from services.podsync.controllers.published_resources import MAX_VANISHED, PublishedResources
from services.podsync.core.node.shown_devices import HOLD_SECONDS
from tests.fakes.memory_bus import ManualClock, MemoryNetwork
from tests.fakes.virtual_time import on_virtual_time, pass_time, virtual_clock

GPU, NIC = "example.com/gpu", "example.com/nic"
MACHINE = NodeResources(capacity={"cpu": "4"}, allocatable={"cpu": "3"}, exclusive_cpus="1-3")


def resource(name: str, healthy: int, unhealthy: int = 0, *, connected: bool = True) -> DeviceResource:
    devices = tuple(Device(id=f"d{number}", healthy=number < healthy) for number in range(healthy + unhealthy))
    return DeviceResource(resource=name, connected=connected, since=1.0, devices=devices)


class Node:
    """Has podsync's publisher of resources on a bus between volume and status."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.network = MemoryNetwork(clock)
        self.podsync, self.status = self.network.bus("podsync"), self.network.bus("status")
        PublishedResources(self.podsync, MACHINE)
        self._seen = self.status.follow(NODE_RESOURCES)

    async def start(self) -> None:
        for bus in (self.podsync, self.status):
            await bus.start()
        await self.network.settle()

    async def start_volume(self, *resources: DeviceResource, complete: bool = True) -> OwnedStream[DeviceResource]:
        bus = self.network.bus("volume")
        stream = bus.own(DEVICES_RESOURCES)
        await bus.start()
        for each in resources:
            stream.put(each.resource, each)
        if complete:
            stream.mark_complete()
        await self.network.advance(2.0)
        return stream

    @property
    def resources(self) -> NodeResources:
        return self._seen.state["node"]

    def amounts(self, name: str) -> tuple[str | None, str | None]:
        return self.resources.capacity.get(name), self.resources.allocatable.get(name)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node()
    await node.start()
    yield node


def extended(amounts: Mapping[str, str]) -> dict[str, str]:
    return {name: amount for name, amount in amounts.items() if "/" in name}


async def test_all_devices_are_capacity_and_the_healthy_ones_allocatable(node: Node) -> None:
    assert node.resources == MACHINE
    stream = await node.start_volume(resource(GPU, healthy=7, unhealthy=1), resource(NIC, healthy=0))
    assert (node.amounts(GPU), node.amounts(NIC), node.amounts("cpu")) == (("8", "7"), ("0", "0"), ("4", "3"))
    assert (node.resources.devices_known, node.resources.exclusive_cpus) == (True, "1-3")
    stream.put(GPU, resource(GPU, healthy=8))
    await node.network.settle()
    assert node.amounts(GPU) == ("8", "8")


async def test_a_plugin_that_is_gone_leaves_capacity_until_it_is_dropped_and_then_zero(node: Node) -> None:
    stream = await node.start_volume(resource(GPU, healthy=2))
    gone = resource(GPU, healthy=0, unhealthy=2, connected=False)
    stream.put(GPU, gone)
    await node.network.settle()
    assert node.amounts(GPU) == ("2", "0")
    stream.put(GPU, DeviceResource(resource=GPU, connected=False, since=2.0, dropped=True))
    await node.network.settle()
    assert node.amounts(GPU) == ("0", "0")


async def test_a_restart_of_volume_changes_nothing_until_it_has_connected_to_its_plugins_again(node: Node) -> None:
    await node.start_volume(resource(GPU, healthy=2))
    node.network.kill("volume")
    await node.network.advance(10.0)
    assert node.amounts(GPU) == ("2", "2")
    stream = await node.start_volume(resource(GPU, healthy=0, connected=False), complete=False)
    assert node.amounts(GPU) == ("2", "2")
    stream.put(GPU, resource(GPU, healthy=3))
    stream.mark_complete()
    await node.network.settle()
    assert node.amounts(GPU) == ("3", "3")


@on_virtual_time
async def test_a_plugin_that_serves_anew_when_volume_restarts_keeps_its_amounts_for_ten_seconds() -> None:
    node = Node(virtual_clock())
    await node.start()
    await node.start_volume(resource(GPU, healthy=2, unhealthy=1))
    unlisted = DeviceResource(resource=GPU, connected=False, since=1.0)  # volume's new process has had no list of it
    gone = resource(GPU, healthy=0, unhealthy=3, connected=False)  # or one list, before the plugin noticed the restart
    for away in (unlisted, gone):
        node.network.kill("volume")
        stream = await node.start_volume(away)
        await pass_time(node.network, HOLD_SECONDS - 3)
        assert node.amounts(GPU) == ("3", "2")
        stream.put(GPU, resource(GPU, healthy=2, unhealthy=1))
        await pass_time(node.network, 1.0)
        assert node.amounts(GPU) == ("3", "2")
    node.network.kill("volume")
    stream = await node.start_volume(unlisted)
    await pass_time(node.network, HOLD_SECONDS + 1)
    assert node.amounts(GPU) == ("3", "0")
    node.network.kill("volume")
    stream = await node.start_volume(unlisted)
    assert node.amounts(GPU) == ("3", "0")
    stream.put(GPU, DeviceResource(resource=GPU, connected=False, since=2.0, dropped=True))
    await node.network.settle()
    assert node.amounts(GPU) == ("0", "0")


async def test_until_volume_has_listed_all_the_node_has_no_amounts_of_devices(node: Node) -> None:
    stream = await node.start_volume(resource(GPU, healthy=2), complete=False)
    assert (node.resources, node.resources.devices_known) == (MACHINE, False)
    stream.mark_complete()
    await node.network.settle()
    assert (node.amounts(GPU), node.resources.devices_known) == (("2", "2"), True)


async def test_a_resource_that_volume_has_forgotten_is_zero_and_not_what_the_node_showed_last(node: Node) -> None:
    await node.start_volume(resource(GPU, healthy=2), resource(NIC, healthy=1))
    node.network.kill("volume")
    await node.start_volume(resource(NIC, healthy=1))
    assert (node.amounts(GPU), node.amounts(NIC)) == (("0", "0"), ("1", "1"))
    node.network.kill("volume")
    await node.start_volume(resource(GPU, healthy=2))
    assert (node.amounts(GPU), node.amounts(NIC)) == (("2", "2"), ("0", "0"))


async def test_names_that_came_and_went_are_limited(node: Node) -> None:
    stream = await node.start_volume()
    for number in range(MAX_VANISHED + 5):
        name = f"example.com/r{number}"
        stream.put(name, resource(name, healthy=1))
        await node.network.settle()
        stream.delete(name)
        await node.network.settle()
    kept = extended(node.resources.capacity)
    assert kept == {f"example.com/r{number}": "0" for number in range(5, MAX_VANISHED + 5)}
