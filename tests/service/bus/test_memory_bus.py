"""Loss, delay, repetition, silence and death on the bus of tests, and that following survives all of them."""

import asyncio
import random
from unittest.mock import patch

import pytest

from bus.interface import Change, Deleted, Freshness, NoAnswerError
from bus.messages.snapshot import GetSnapshot, Snapshot
from bus.messages.sources import DesiredPod
from bus.messages.streams import PODS_DESIRED
from bus.stream import StreamOwner
from tests.fakes.memory_bus import IDLE_TURNS, Action, Delivery, MemoryNetwork


def pod(uid: str, version: int = 0) -> DesiredPod:
    return DesiredPod(uid=uid, source="file", pod={"version": version})


class World:
    """sources owning pods.desired, podsync following it."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.changes: list[Change[DesiredPod]] = []
        self.follower = self.network.bus("podsync")
        self.stream = self.follower.follow(PODS_DESIRED, self.changes.append)

    async def start_owner(self) -> StreamOwner[DesiredPod]:
        owner = self.network.bus("sources")
        pods = owner.own(PODS_DESIRED)
        await owner.start()
        return pods

    async def start(self) -> StreamOwner[DesiredPod]:
        pods = await self.start_owner()
        await self.follower.start()
        await self.network.settle()
        assert not self.stream.stale
        return pods


@pytest.fixture
def world() -> World:
    return World()


async def turns_of(network: MemoryNetwork) -> int:
    """How many turns of the loop it took to settle."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]  # asked once in every turn
    with patch.object(selector, "select", wraps=selector.select) as select:
        await network.settle()
    return select.call_count


async def test_no_time_passes_where_nothing_is_ready_to_run() -> None:
    assert await turns_of(MemoryNetwork()) <= 3


@pytest.mark.parametrize("steps", [1, 5, IDLE_TURNS - 2])
async def test_who_reacts_in_several_steps_has_reacted(steps: int) -> None:
    done = asyncio.Event()

    async def react() -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        done.set()

    task = asyncio.create_task(react())
    await MemoryNetwork().settle()
    assert done.is_set()
    await task


async def test_a_lost_last_update_is_noticed_by_the_next_beat(world: World) -> None:
    pods = await world.start()
    world.network.action = lambda delivery: Action.DROP if delivery.stream == "pods.desired" else Action.DELIVER
    pods.put("a", pod("a"))
    await world.network.settle()
    assert "a" not in world.stream.state
    await world.network.advance(1.0)
    assert world.stream.state["a"] == pod("a")


async def test_a_lost_update_before_others_is_noticed_by_the_next_update(world: World) -> None:
    pods = await world.start()
    world.network.action = lambda _: Action.DROP
    pods.put("a", pod("a"))
    world.network.action = lambda _: Action.DELIVER
    pods.put("b", pod("b"))
    await world.network.settle()
    assert set(world.stream.state) == {"a", "b"}
    assert world.follower.drops.counts["snapshot again"] == 1


async def test_a_repeated_update_is_passed_on_once(world: World) -> None:
    pods = await world.start()
    world.network.action = lambda _: Action.DUPLICATE
    pods.put("a", pod("a"))
    pods.delete("a")
    await world.network.settle()
    assert len([change for change in world.changes if not isinstance(change, Freshness)]) == 2


async def test_a_delayed_update_does_not_undo_a_newer_one(world: World) -> None:
    pods = await world.start()
    world.network.action = lambda _: Action.DELAY
    pods.put("a", pod("a", 1))
    world.network.action = lambda _: Action.DELIVER
    pods.put("a", pod("a", 2))
    await world.network.settle()
    world.network.release()
    await world.network.settle()
    assert world.stream.state["a"] == pod("a", 2)


async def test_silence_for_more_than_three_beats_is_stale_and_keeps_the_state(world: World) -> None:
    pods = await world.start()
    pods.put("a", pod("a"))
    pods.mark_complete()
    await world.network.settle()
    world.network.kill("sources")
    await world.network.advance(3.0)
    assert not world.stream.stale
    await world.network.advance(1.0)
    assert world.changes[-1] == Freshness(complete=True, stale=True)
    assert dict(world.stream.state) == {"a": pod("a")}


async def test_a_stale_stream_is_fresh_again_once_the_owner_is_back(world: World) -> None:
    await world.start()
    world.network.kill("sources")
    await world.network.advance(10.0)
    assert world.stream.stale
    await world.start_owner()
    await world.network.settle()
    assert not world.stream.stale


async def test_a_snapshot_request_that_dies_with_its_owner_is_answered_by_the_next_one(world: World) -> None:
    pods = await world.start()
    world.network.action = lambda _: Action.DROP
    pods.put("a", pod("a"))
    world.network.action = lambda _: Action.DELIVER
    pods.put("b", pod("b"))  # notices the gap; the request is still in the loop when the owner dies
    await asyncio.sleep(0)
    world.network.kill("sources")
    await world.network.settle()
    pods = await world.start_owner()
    pods.put("c", pod("c"))
    pods.mark_complete()
    await world.network.settle()
    assert dict(world.stream.state) == {"c": pod("c")}
    assert world.stream.complete


async def test_an_update_of_a_killed_owner_reaches_no_follower(world: World) -> None:
    pods = await world.start()
    dead = world.network
    dead.kill("sources")
    pods.put("a", pod("a"))
    await dead.settle()
    assert not world.stream.state


async def test_a_killed_service_cannot_ask(world: World) -> None:
    await world.start()
    world.network.kill("podsync")
    with pytest.raises(NoAnswerError, match="podsync did not ask sources for GetSnapshot: it is no more"):
        await world.follower.ask("sources", GetSnapshot(stream="pods.desired"), Snapshot)


async def test_a_service_runs_once(world: World) -> None:
    with pytest.raises(RuntimeError, match="podsync is running already"):
        world.network.bus("podsync")


async def test_each_start_is_an_incarnation_of_its_own(world: World) -> None:
    assert world.follower.incarnation == "podsync-1"
    world.network.kill("podsync")
    again = world.network.bus("podsync")
    assert again.incarnation == "podsync-2"
    await again.stop()
    assert world.network.bus("podsync").incarnation == "podsync-3"


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_the_follower_equals_its_owner_once_all_is_well(world: World, seed: int) -> None:
    chance = random.Random(seed)
    truth: dict[str, DesiredPod] = {}
    pods = await world.start()

    def action(_: Delivery) -> Action:
        return chance.choice([Action.DELIVER, Action.DELIVER, Action.DROP, Action.DUPLICATE, Action.DELAY])

    world.network.action = action
    for step in range(200):
        uid = f"pod-{chance.randrange(8)}"
        match chance.randrange(12):
            case 0:
                await world.network.advance(chance.random() * 5)
            case 1:
                world.network.release()
            case 2:
                world.network.kill("sources")
                await world.network.advance(chance.choice([0.0, 1.0, 5.0]))
                pods = await world.start_owner()
                for key, value in truth.items():
                    pods.put(key, value)
                pods.mark_complete()
            case 3 | 4 | 5:
                truth.pop(uid, None)
                pods.delete(uid)
            case _:
                truth[uid] = pod(uid, step)
                pods.put(uid, truth[uid])
        if chance.random() < 0.5:
            await world.network.settle()
    world.network.action = lambda _: Action.DELIVER
    pods.mark_complete()
    await world.network.advance(6.0)  # a snapshot request under way may have died with its owner: 5 s
    assert dict(world.stream.state) == truth
    assert (world.stream.complete, world.stream.stale) == (True, False)
    values: dict[str, DesiredPod] = {}
    for change in world.changes:
        if isinstance(change, Deleted):
            del values[change.key]
        elif not isinstance(change, Freshness):
            values[change.key] = change.value
    assert values == truth
