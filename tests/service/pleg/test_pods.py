"""What the runtime has reaches `runtime.pods`: at once where there is a hint, else with the next full list."""

import pytest

from services.pleg.core.observation import RELIST_SECONDS, UNHINTED_RELIST_SECONDS
from shared.cri.interface import PartialObservationError, RuntimeCallError, RuntimeEvent
from shared.model.runtime import ContainerState, RuntimePod, SandboxState
from tests.service.pleg.world import PlegWorld

pytestmark = pytest.mark.virtual_time


async def test_the_stream_is_complete_and_empty_where_the_runtime_has_nothing(world: PlegWorld) -> None:
    assert world.pods.complete and not world.pods.state


async def test_everything_the_runtime_has_is_published_before_the_stream_is_complete() -> None:
    world = PlegWorld()
    for number in range(30):
        await world.run_pod(f"pod{number}")
    async with world:
        assert world.pods.complete and len(world.pods.state) == 30
        assert len(world.pidfds.watched) == 60
        # One list to see them and one to see that the pids were the right ones, not a look at each.
        assert (world.lists(), world.looks()) == (2, 0)


async def test_a_container_that_a_status_names_is_seen_and_watched_at_once(world: PlegWorld) -> None:
    _, container = await world.run_pod("a")
    world.publish_status("a", container)
    assert await world.until(lambda: "a" in world.pods.state) < 0.001
    assert world.container("a").state is ContainerState.RUNNING
    assert container in world.pidfds.watched


async def test_a_pod_that_was_removed_from_outside_before_the_first_look_is_published_without_containers(
    world: PlegWorld,
) -> None:
    world.publish_status("a", "removed")
    assert await world.until(lambda: "a" in world.pods.state) < 0.001
    lost = world.pods.state["a"]
    assert (lost.sandboxes, lost.containers) == ((), ())
    await world.pass_time(2 * RELIST_SECONDS)
    assert "a" in world.pods.state
    world.publish_status("a")
    await world.until(lambda: "a" not in world.pods.state)


async def test_a_container_removed_long_ago_that_a_status_still_names_costs_one_look(world: PlegWorld) -> None:
    await world.run_pod("a")
    await world.pass_time(RELIST_SECONDS)
    looks = world.looks()
    for _ in range(5):
        world.publish_status("a", "removed")
        await world.network.settle()
    assert world.looks() == looks + 1


async def test_a_status_that_came_before_the_first_list_is_not_forgotten() -> None:
    world = PlegWorld()
    hang = world.runtime.hang("Observe", after=True)
    await world.start()
    await world.run_known_pod("a")
    hang.release.set()
    assert await world.until(lambda: "a" in world.pods.state) < 0.001
    await world.stop()


async def test_an_exit_is_published_without_time_passing(world: PlegWorld) -> None:
    container = await world.run_known_pod("a")
    world.runtime.exit_container(container, 3)
    assert await world.until(lambda: world.container("a").state is ContainerState.EXITED) < 0.001
    assert world.container("a").exit_code == 3
    assert container not in world.pidfds.watched


async def test_an_exit_the_runtime_has_not_processed_yet_is_looked_at_again_until_it_has(world: PlegWorld) -> None:
    container = await world.run_known_pod("a")
    looks = world.looks()
    world.runtime.exit_container(container, 3, settled=False)
    await world.pass_time(0.010)  # looks at 0 and 5 ms
    assert world.looks() == looks + 2
    world.runtime.settle_exits()
    took = await world.until(lambda: world.container("a").state is ContainerState.EXITED)
    assert took < 0.010
    assert world.looks() == looks + 3


async def test_an_exit_that_is_never_confirmed_is_left_to_the_list_and_not_watched_again(world: PlegWorld) -> None:
    container = await world.run_known_pod("a")
    looks = world.looks()
    world.runtime.exit_container(container, settled=False)
    await world.pass_time(1.5)
    assert world.looks() <= looks + 15
    looks = world.looks()
    await world.pass_time(5)
    assert world.looks() == looks
    assert world.pidfds.ever.count(container) == 1
    world.runtime.settle_exits()
    took = await world.until(lambda: world.container("a").state is ContainerState.EXITED)
    assert took <= UNHINTED_RELIST_SECONDS


async def test_a_sandbox_that_ends_is_published_and_keeps_its_last_address(world: PlegWorld) -> None:
    sandbox, container = await world.run_pod("a")
    world.publish_status("a", container)
    await world.network.settle()
    ips = world.pods.state["a"].sandboxes[0].ips
    await world.runtime.stop_pod_sandbox(sandbox)
    await world.until(lambda: world.pods.state["a"].sandboxes[0].state is SandboxState.NOTREADY, within=0.001)
    assert world.pods.state["a"].sandboxes[0].ips == ips != ()
    assert world.pidfds.watched == {}


async def test_a_pod_the_runtime_no_longer_has_is_withdrawn_by_the_next_list(world: PlegWorld) -> None:
    sandbox, container = await world.run_pod("a")
    world.publish_status("a", container)
    await world.network.settle()
    await world.runtime.remove_pod_sandbox(sandbox)
    await world.until(lambda: "a" not in world.pods.state, within=RELIST_SECONDS)
    assert world.deletions() == ["a"]


async def test_nothing_is_published_while_nothing_changes_but_one_confirmation(world: PlegWorld) -> None:
    _, container = await world.run_pod("a")
    world.publish_status("a", container)
    await world.pass_time(60)
    first, second = world.puts("a")
    assert first.same_content(second)
    # podsync ignores what was observed before its last call returned: the second put is clearly later.
    assert second.observed_at >= first.observed_at + 1


async def test_lists_are_rare_while_every_process_is_held_and_frequent_while_one_is_not(world: PlegWorld) -> None:
    _, container = await world.run_pod("a")
    world.publish_status("a", container)
    await world.pass_time(RELIST_SECONDS)
    lists = world.lists()
    await world.pass_time(20)
    assert world.lists() - lists == 20 / RELIST_SECONDS
    world.pidfds.refusal = OSError(24, "Too many open files")
    second = await world.run_known_pod("b")
    lists = world.lists()
    await world.pass_time(5)
    assert world.lists() - lists >= 4
    world.pidfds.refusal = None
    await world.until(lambda: second in world.pidfds.watched, within=UNHINTED_RELIST_SECONDS)


async def test_a_process_that_is_gone_when_it_shall_be_watched_is_looked_at_again(world: PlegWorld) -> None:
    _, container = await world.run_pod("a")
    world.runtime.exit_container(container, 5, settled=False)
    world.publish_status("a", container)
    await world.network.settle()
    assert world.container("a").state is ContainerState.RUNNING
    world.runtime.settle_exits()
    await world.until(lambda: world.container("a").state is ContainerState.EXITED, within=0.01)


async def test_hints_for_one_pod_that_come_during_a_look_cost_one_more_look() -> None:
    async with PlegWorld(events=True) as world:
        await world.run_pod("a")
        await world.network.settle()
        hang = world.runtime.hang("Observe")
        world.runtime.emit(RuntimeEvent(pod_uid="a", container_id="x", type="STARTED"))
        await world.network.settle()
        looks = world.looks()
        for _ in range(10):
            world.runtime.emit(RuntimeEvent(pod_uid="a", container_id="x", type="STARTED"))
        await world.network.settle()
        assert world.looks() == looks
        hang.release.set()
        await world.network.settle()
        assert world.looks() == looks + 1


async def test_an_older_observation_never_replaces_a_newer_one(world: PlegWorld) -> None:
    """A full list that saw the container running arrives after a look that saw it exit."""
    container = await world.run_known_pod("a")
    hang = world.runtime.hang("Observe", after=True)
    await world.until(hang.reached.is_set, within=RELIST_SECONDS)
    await world.pass_time(0.001)
    world.runtime.exit_container(container, 1)
    await world.until(lambda: world.container("a").state is ContainerState.EXITED, within=0.001)
    hang.release.set()
    await world.network.settle()
    assert world.container("a").state is ContainerState.EXITED


async def test_a_pod_that_cannot_be_inspected_hides_no_other_and_is_not_withdrawn(
    world: PlegWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.run_pod("broken")
    await world.pass_time(RELIST_SECONDS)
    observe = world.runtime.observe

    async def partly(uid: str | None = None) -> dict[str, RuntimePod]:
        pods = await observe(uid)
        if uid is None and "broken" in pods:
            del pods["broken"]
            error = RuntimeCallError("ContainerStatus", "Internal", "no such task")
            raise PartialObservationError(error, pods, frozenset({"broken"}))
        return pods

    monkeypatch.setattr(world.runtime, "observe", partly)
    await world.run_pod("good")
    await world.until(lambda: "good" in world.pods.state, within=RELIST_SECONDS)
    assert "broken" in world.pods.state
    await world.pass_time(1)
    assert "broken" in world.troubles()[0] and "no such task" in world.troubles()[0]


async def test_a_restarted_pleg_shows_what_exited_while_it_was_gone(world: PlegWorld) -> None:
    _, container = await world.run_pod("a")
    sandbox, _ = await world.run_pod("b")
    await world.pass_time(RELIST_SECONDS)
    await world.kill_pleg()
    world.runtime.exit_container(container, 9)
    await world.runtime.remove_pod_sandbox(sandbox)
    await world.start_pleg()
    await world.pass_time(1)
    assert world.container("a").exit_code == 9
    assert set(world.pods.state) == {"a"}
