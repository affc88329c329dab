"""An event loop on a ManualClock: timers fire when a test lets time pass, at their very moments and without waiting."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec

from tests.fakes.memory_bus import ManualClock, MemoryNetwork

P = ParamSpec("P")


class _Impatient(selectors.DefaultSelector):
    """Never waits for a descriptor: time only passes in `pass_time`."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is the clock's; asyncio's own timers (sleep, timeout, call_later) run on it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(_Impatient())

    def time(self) -> float:
        return self.clock.monotonic()

    def next_timer(self) -> float:
        """When the next timer fires; a second from now where there is none."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return min((handle.when() for handle in scheduled if not handle.cancelled()), default=self.time() + 1)


class AtOnce(ThreadPoolExecutor):
    """Runs what is given to a thread on the spot: a disk takes no virtual time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a VirtualLoop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def virtual_clock() -> ManualClock:
    """The clock of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "the test is neither marked virtual_time nor decorated with on_virtual_time"
    return loop.clock


async def pass_time(network: MemoryNetwork, seconds: float) -> None:
    """Let time pass timer by timer; everything that reacts has reacted when this returns."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop) and network.clock is loop.clock
    end = loop.time() + seconds
    await network.settle()
    while (left := end - loop.time()) > 0:
        step = loop.next_timer() - loop.time()
        if step > 0:
            await network.advance(min(step, left))
        await network.settle()


async def until(network: MemoryNetwork, holds: Callable[[], bool], within: float) -> float:
    """Let time pass until it holds; the seconds it took. Fails when that is more than `within`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    began = loop.time()
    await network.settle()
    while not holds():
        left = began + within - loop.time()
        assert left > 0, f"did not come true within {within} s"
        await pass_time(network, min(max(loop.next_timer() - loop.time(), 0.0001), left))
    return loop.time() - began


async def ended(task: "asyncio.Task[None]") -> None:
    """Cancel a service and wait for its end."""
    task.cancel()
    await _quietly(task)


async def _quietly(waiting: Awaitable[None]) -> None:
    try:
        await waiting
    except asyncio.CancelledError:
        pass
