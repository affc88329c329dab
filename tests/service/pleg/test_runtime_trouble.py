"""A runtime that is away, broken or without events: pleg reports it in one line, keeps trying, and loses nothing."""

import pytest

from services.pleg.core.observation import RELIST_SECONDS
from shared.cri.interface import RuntimeEvent
from shared.model.runtime import ContainerState
from tests.service.pleg.world import PlegWorld

pytestmark = pytest.mark.virtual_time


async def test_a_runtime_that_is_away_is_named_in_the_beat_with_a_remedy() -> None:
    world = PlegWorld()
    world.runtime.reachable = False
    async with world:
        await world.pass_time(2)
        (line,) = world.troubles()
        assert line.startswith("unix:///run/fake.sock: the container runtime does not answer")
        assert "connection refused" in line and "containerRuntimeEndpoint" in line and "\n" not in line
        assert not world.pods.complete
        assert not world.node.state["node"].runtime_reachable


async def test_it_tries_again_after_100_ms_doubling_up_to_5_s_for_ever() -> None:
    world = PlegWorld()
    world.runtime.reachable = False
    async with world:
        await world.pass_time(0.75)  # tries at 0, 0.1, 0.3, 0.7
        assert world.lists() == 4
        await world.pass_time(60)
        lists = world.lists()
        await world.pass_time(50)
        assert world.lists() - lists == 10


async def test_a_runtime_that_comes_back_is_listed_and_the_trouble_ends() -> None:
    world = PlegWorld()
    world.runtime.reachable = False
    async with world:
        await world.pass_time(30)
        world.runtime.reachable = True
        await world.run_pod("a")
        await world.until(lambda: "a" in world.pods.state, within=5.0)
        assert world.pods.complete
        await world.pass_time(1)
        assert world.troubles() == ()
        assert world.node.state["node"].runtime_reachable


async def test_pods_stay_published_while_the_runtime_is_away(world: PlegWorld) -> None:
    await world.run_pod("a")
    await world.pass_time(RELIST_SECONDS)
    world.runtime.reachable = False
    await world.pass_time(60)
    assert "a" in world.pods.state and world.deletions() == []
    assert world.pods.complete


async def test_the_progress_of_lists_stands_still_while_the_runtime_is_away(world: PlegWorld) -> None:
    await world.pass_time(10)
    listed = world.beats["pleg"].progress["relist"]
    world.runtime.reachable = False
    await world.pass_time(60)
    assert world.beats["pleg"].progress["relist"] <= listed + RELIST_SECONDS
    assert world.clock.monotonic() - world.beats["pleg"].progress["node"] <= 6


async def test_a_process_that_ends_while_the_runtime_is_away_is_seen_when_it_is_back(world: PlegWorld) -> None:
    _, container = await world.run_pod("a")
    await world.pass_time(RELIST_SECONDS)
    world.runtime.reachable = False
    world.runtime.exit_container(container, 4)
    await world.pass_time(20)
    assert world.container("a").state is ContainerState.RUNNING
    world.runtime.reachable = True
    await world.until(lambda: world.container("a").exit_code == 4, within=5.1)


async def test_events_are_hints_to_look_at_one_pod() -> None:
    async with PlegWorld(events=True) as world:
        assert world.node.state["node"].event_stream
        lists = world.lists()
        sandbox, _ = await world.run_pod("a")
        await world.until(lambda: "a" in world.pods.state, within=0.001)
        await world.runtime.remove_pod_sandbox(sandbox)
        await world.until(lambda: "a" not in world.pods.state, within=0.001)
        assert world.lists() == lists


async def test_late_repeated_and_made_up_events_change_nothing() -> None:
    async with PlegWorld(events=True) as world:
        _, container = await world.run_pod("a")
        await world.pass_time(RELIST_SECONDS * 2)
        puts = len(world.pods_seen)
        for kind in ("STOPPED", "STOPPED", "DELETED", "CREATED"):
            world.runtime.emit(RuntimeEvent(pod_uid="a", container_id=container, type=kind))
            world.runtime.emit(RuntimeEvent(pod_uid="unknown", container_id="x", type=kind))
            await world.network.settle()
        assert len(world.pods_seen) == puts
        assert world.container("a").state is ContainerState.RUNNING


async def test_an_event_of_no_pod_makes_a_full_list() -> None:
    async with PlegWorld(events=True) as world:
        lists = world.lists()
        world.runtime.emit(RuntimeEvent(pod_uid="", container_id="x", type="DELETED"))
        await world.network.settle()
        assert world.lists() == lists + 1


async def test_there_is_one_reader_and_every_reconnect_makes_a_full_list() -> None:
    async with PlegWorld(events=True) as world:
        for _ in range(3):
            assert world.runtime.event_readers == 1
            lists = world.lists()
            world.runtime.break_events()
            await world.network.settle()
            assert not world.node.state["node"].event_stream
            await world.until(lambda: world.node.state["node"].event_stream, within=1.0)
            assert world.lists() > lists


async def test_a_runtime_without_events_is_not_asked_again_before_it_went_away_and_came_back(world: PlegWorld) -> None:
    await world.pass_time(60)
    assert len(world.runtime.requests("GetContainerEvents")) == 1
    assert not world.node.state["node"].event_stream
    world.runtime.reachable = False
    await world.pass_time(10)
    world.runtime.reachable = world.runtime.event_stream = True
    await world.until(lambda: world.node.state["node"].event_stream, within=10.1)


async def test_the_trouble_is_logged_once_and_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    world = PlegWorld()
    world.runtime.reachable = False
    async with world:
        await world.pass_time(60)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1 and errors[0].exc_info is None
