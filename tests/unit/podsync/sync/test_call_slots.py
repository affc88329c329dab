"""Turns for building calls: bounded, what finishes a pod first, and no call delayed for long by one that hangs."""

import asyncio

from services.podsync.adapters.calls.call_slots import CallPriority, CallSlots
from tests.fakes.virtual_time import on_virtual_time, virtual_clock

HOLD_SECONDS = 2.0


class Calls:
    """Records who began, and ends on request."""

    def __init__(self, turns: int) -> None:
        self.slots, self.began, self.end = CallSlots(turns, HOLD_SECONDS), list[str](), dict[str, asyncio.Event]()
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, rank: CallPriority = CallPriority.SANDBOX) -> None:
        self.end[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._call(name, rank))
        await settle()

    async def _call(self, name: str, rank: CallPriority) -> None:
        async with self.slots.turn(rank):
            self.began.append(name)
            await self.end[name].wait()

    async def finish(self, *names: str) -> None:
        for name in names:
            self.end[name].set()
            await self.tasks[name]
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@on_virtual_time
async def test_no_more_calls_than_turns_are_under_way_and_what_finishes_a_pod_goes_first() -> None:
    calls = Calls(2)
    for name in ("a", "b", "c", "d"):
        await calls.ask(name)
    await calls.ask("create", CallPriority.CREATE)
    await calls.ask("start", CallPriority.START)
    assert calls.began == ["a", "b"]
    await calls.finish("a")
    assert calls.began[2:] == ["start"]
    await calls.finish("b", "start")
    assert calls.began[3:] == ["create", "c"]
    await calls.finish("create", "c", "d")
    assert calls.began[5:] == ["d"]


@on_virtual_time
async def test_calls_that_hang_delay_no_other_for_longer_than_the_hold_seconds() -> None:
    calls = Calls(1)
    await calls.ask("hangs")
    await calls.ask("waits")
    assert calls.began == ["hangs"]
    virtual_clock().advance(HOLD_SECONDS + 0.01)
    await settle()
    assert calls.began == ["hangs", "waits"]
    await calls.ask("third")
    await calls.finish("hangs")  # its turn was given away already: it is not given twice
    assert calls.began == ["hangs", "waits"]
    await calls.finish("waits", "third")
    assert calls.began == ["hangs", "waits", "third"]


@on_virtual_time
async def test_a_call_given_up_while_it_waits_or_just_as_its_turn_comes_takes_no_turn() -> None:
    calls = Calls(1)
    for name in ("a", "given-up", "too-late", "last"):
        await calls.ask(name)
    calls.tasks["given-up"].cancel()
    await settle()
    calls.end["a"].set()
    await asyncio.sleep(0)  # its turn is passed on now, and not yet taken
    calls.tasks["too-late"].cancel()
    await settle()
    assert calls.began == ["a", "last"]
    await calls.finish("last")
