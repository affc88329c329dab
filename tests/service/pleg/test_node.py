"""`node.observed`: sent when something material changed, at most every 10 s otherwise."""

import pytest

from shared.cri.interface import RuntimeCondition, RuntimeVersion
from shared.model.frozen_copy import replace
from tests.service.pleg.world import MEMORY, READING, PlegWorld

pytestmark = pytest.mark.virtual_time

NOT_READY = RuntimeCondition(
    type="NetworkReady",
    status=False,
    reason="NetworkPluginNotReady",
    message="Network plugin returns error: cni plugin not initialized",
)
READY = RuntimeCondition(type="RuntimeReady", status=True, reason="", message="")


async def test_runtime_and_machine_are_published_once_both_are_known(world: PlegWorld) -> None:
    node = world.node.state["node"]
    assert world.node.complete and len(world.nodes_seen) == 1
    assert (node.runtime_name, node.runtime_version) == ("containerd", "1.6.20~ds1")
    assert node.runtime_reachable and node.runtime_ready and node.network_ready
    assert (node.memory_capacity, node.cpus) == (MEMORY, 2)


async def test_a_condition_that_fails_is_published_with_the_reason_within_one_look(world: PlegWorld) -> None:
    world.runtime.conditions = (READY, NOT_READY)
    await world.until(lambda: not world.node.state["node"].network_ready, within=5.0)
    assert world.node.state["node"].network_message == (
        "reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
    )


async def test_a_processor_that_is_added_is_published_within_one_look(world: PlegWorld) -> None:
    world.machine = replace(READING, cpus=4)
    await world.until(lambda: world.node.state["node"].cpus == 4, within=5.0)


async def test_a_relist_is_published_at_most_every_ten_seconds(world: PlegWorld) -> None:
    await world.pass_time(60)
    assert 5 <= len(world.nodes_seen) <= 7


async def test_a_runtime_that_hangs_does_not_keep_the_machine_from_being_read(world: PlegWorld) -> None:
    world.runtime.hang("Status", times=0)
    world.machine = replace(READING, cpus=4)
    await world.until(lambda: world.node.state["node"].cpus == 4, within=5.0)
    await world.until(lambda: not world.node.state["node"].runtime_reachable, within=20.0)
    world.runtime.clear_faults()
    await world.until(lambda: world.node.state["node"].runtime_reachable, within=20.0)


async def test_another_version_after_a_restart_of_the_runtime_is_published(world: PlegWorld) -> None:
    world.runtime.reachable = False
    await world.pass_time(10)
    world.runtime.runtime_version = RuntimeVersion(name="containerd", version="2.1.9", api_version="v1")
    world.runtime.reachable = True
    await world.until(lambda: world.node.state["node"].runtime_version == "2.1.9", within=10.0)
