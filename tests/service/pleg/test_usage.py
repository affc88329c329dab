"""What pods and the node use, as followers and requests see it."""

import pytest

from bus.messages.cgroup_details import FoundCgroups, GetCgroups
from bus.messages.usage import GetUsage
from services.pleg.controllers.usage_reader import INTEREST_SECONDS, READ_SECONDS
from tests.service.pleg.usage_world import SECOND, ask, usage_of, with_pod
from tests.service.pleg.world import PlegWorld

pytestmark = pytest.mark.virtual_time


async def test_followers_get_the_node_every_ten_seconds(world: PlegWorld) -> None:
    assert await world.until(lambda: world.node_usage.complete) < 1.0
    first = world.node_usage.state["node"].read_at
    await world.pass_time(READ_SECONDS)
    assert world.node_usage.state["node"].read_at == pytest.approx(first + READ_SECONDS)


async def test_a_second_reading_has_the_cpu_use_between_the_two() -> None:
    world, container = await with_pod()
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        first = (await ask(world)).pods[0]
        assert first.cgroup is not None and first.cgroup.cpu_nanocores is None
        world.usage.pods["a"] = usage_of("a", container, 3 * SECOND)
        await world.pass_time(READ_SECONDS)
        pod = (await ask(world)).pods[0]
        assert pod.cgroup is not None and pod.containers[0].cgroup is not None
        assert pod.cgroup.cpu_nanocores == pod.containers[0].cgroup.cpu_nanocores
        assert (pod.cgroup.cpu_nanocores or 0) * (pod.read_at - first.read_at) == pytest.approx(2 * SECOND)


async def test_an_answer_is_complete_once_the_runtime_was_listed() -> None:
    world, _ = await with_pod()
    hang = world.runtime.hang("Observe")
    async with world:
        found = await ask(world)
        assert not found.complete and not found.pods
        hang.release.set()
        await world.until(lambda: "a" in world.pods.state)
        found = await ask(world)
        assert found.complete and [pod.uid for pod in found.pods] == ["a"]
        del world.usage.pods["a"]
        await world.pass_time(1.0)
        found = await ask(world, GetUsage(max_age_seconds=0.0))
        assert found.complete and not found.pods


async def test_a_request_is_answered_by_the_last_reading_unless_that_is_too_old() -> None:
    world, container = await with_pod()
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        await ask(world)
        await world.pass_time(2.0)
        readings = world.usage.readings
        found = await ask(world, GetUsage(max_age_seconds=READ_SECONDS))
        assert world.usage.readings == readings
        assert [pod.uid for pod in found.pods] == ["a"]
        world.usage.pods["a"] = usage_of("a", container, 2 * SECOND)
        found = await ask(world, GetUsage(max_age_seconds=1.0))
        assert world.usage.readings == readings + 1
        assert found.pods[0].cgroup is not None and found.pods[0].cgroup.cpu_nanoseconds == 2 * SECOND
        assert found.node.read_at == world.clock.monotonic()


async def test_a_request_for_the_node_alone_reads_no_pod(world: PlegWorld) -> None:
    await world.pass_time(5.0)
    found = await ask(world, GetUsage(max_age_seconds=0.0, pods=False))
    assert world.usage.readings == 0 and not found.pods
    assert found.node.read_at == world.clock.monotonic()


@pytest.mark.long
async def test_pods_are_read_for_five_minutes_after_a_request() -> None:
    world, _ = await with_pod()
    async with world:
        await world.pass_time(10 * READ_SECONDS)
        assert world.usage.readings == 0
        await ask(world)
        await world.pass_time(INTEREST_SECONDS - READ_SECONDS)
        assert world.usage.readings >= INTEREST_SECONDS / READ_SECONDS - 2
        await world.pass_time(3 * READ_SECONDS)
        readings = world.usage.readings
        await world.pass_time(10 * READ_SECONDS)
        assert world.usage.readings == readings


async def test_requests_for_all_cgroups_share_a_reading_that_is_new_enough(world: PlegWorld) -> None:
    await world.run_pod("a")
    await world.until(lambda: "a" in world.pods.state)
    request = GetCgroups(max_age_seconds=2.0)
    for _ in range(2):
        assert (await world.podsync.ask("pleg", request, FoundCgroups)).machine.cores == 2
    assert world.usage.cgroup_readings == [["a"]]
    await world.pass_time(3.0)
    await world.podsync.ask("pleg", request, FoundCgroups)
    assert world.usage.cgroup_readings == [["a"], ["a"]]


async def test_a_notification_of_the_kernel_causes_a_reading_at_once(world: PlegWorld) -> None:
    await world.until(lambda: "node" in world.node_usage.state)
    await world.pass_time(1)
    before = world.node_usage.state["node"].read_at
    world.usage.notify()
    assert await world.until(lambda: world.node_usage.state["node"].read_at > before) < 1.0
