"""Virtual time, and services that can be killed: an event loop whose clock jumps from timer to timer, and incarnations.

An incarnation is one run of a service, as one process would be. Each callback has its context, so that a killed one
never runs another step: its coroutines stay where they were, as the memory of a process ends with SIGKILL.
"""

import asyncio
import contextvars
import heapq
import selectors
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.fakes.memory_bus import ManualClock

INCARNATION: contextvars.ContextVar["Incarnation | None"] = contextvars.ContextVar("incarnation", default=None)
TURNS_WITHOUT_TIME = 30_000  # callbacks at one moment: more is a loop that never ends
_OURS = ("/services/", "/bus/", "/shared/")


class Killed(BaseException):
    """SIGKILL in the middle of a step. No code may catch it."""


class StuckError(Exception):
    """Callbacks run without end and time does not pass, or nothing will ever happen."""


class Incarnation:
    """One run of one service. `kill_in`: steps until it is killed, `lines`: lines of code into that step."""

    def __init__(self, service: str, number: int, on_death: Callable[["Incarnation"], None]) -> None:
        self.service, self.number = service, number
        self.dead = False
        self.kill_in: int | None = None
        self.lines = 0
        self.crash_at: str | None = None  # the crash points that kill, by the beginning of their names
        self._on_death = on_death
        self.context = contextvars.Context()
        self.context.run(INCARNATION.set, self)

    def die(self) -> None:
        """From now on nothing of it runs."""
        if not self.dead:
            self.dead = True
            self._on_death(self)

    def step(self, run: Callable[[], None]) -> None:
        """One callback of this incarnation, unless it is dead; the one at which it is to die ends after some lines."""
        if self.dead:
            return
        if self.kill_in is None:
            run()
            return
        self.kill_in -= 1
        if self.kill_in > 0:
            run()
            return
        self._run_to_a_line(run)
        self.die()

    def _run_to_a_line(self, run: Callable[[], None]) -> None:
        left = self.lines

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not any(part in frame.f_code.co_filename for part in _OURS) or "/tests/" in frame.f_code.co_filename:
                return None
            if event == "line":
                left -= 1
                if left <= 0:
                    sys.settrace(None)
                    self.die()
                    raise Killed
            return trace

        if left <= 0:
            return
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            run()
        finally:
            sys.settrace(before)


class _Handle(asyncio.Handle):
    """Runs only while its incarnation does."""

    def _run(self) -> None:
        incarnation = self._context.get(INCARNATION)  # type: ignore[attr-defined]
        if incarnation is None:
            super()._run()
        else:
            incarnation.step(super()._run)


class _TimerHandle(_Handle, asyncio.TimerHandle):
    """Runs at its time, and only while its incarnation does."""


class _Jumping(selectors.DefaultSelector):
    """Where a loop would sleep, the clock jumps to the next timer."""

    loop: "SimulationLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0) if len(self.get_map()) > 1 else []
        if not found:
            if timeout is None:
                raise StuckError("nothing will ever happen")
            if timeout > 0:
                self.loop.jump()
            else:
                self.loop.count_turn()
        return found


class SimulationLoop(asyncio.SelectorEventLoop):
    """`time()` is the clock's. What is given to a thread is done in a turn of its own, in the order it was given."""

    def __init__(self, clock: "NodeClock") -> None:
        self.clock = clock
        self._turns = 0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-9
        self.set_exception_handler(lambda _loop, _context: None)
        self.failures: list[dict[str, Any]] = []

    def time(self) -> float:
        return self.clock.now

    def jump(self) -> None:
        """To the next timer."""
        self._turns = 0
        when: float = self._scheduled[0].when()  # type: ignore[attr-defined]
        self.clock.advance(when - self.clock.now)

    def count_turn(self) -> None:
        """One more turn at this moment."""
        self._turns += 1
        if self._turns > TURNS_WITHOUT_TIME:
            raise StuckError("something runs all the time and waits for nothing")

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.clock.now + delay, callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """A thread that has done its work by the next turn."""
        done: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Killed:
                return
            except Exception as error:
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        self.call_soon(work)
        return done


class NodeClock(ManualClock):
    """The node's clocks: the wall clock can be set, and no two looks at the steady one see the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = 0.0

    @property
    def now(self) -> float:
        """The loop's own moment."""
        return self._monotonic

    def monotonic(self) -> float:
        self._seen = max(self._monotonic, self._seen + 1e-9)
        return self._seen

    def step(self, seconds: float) -> None:
        """Set the wall clock."""
        self._wall += seconds


class ApiClock:
    """The clock of the API server's machine: right at all times."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._offset = clock.wall() - clock.monotonic()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wall(self) -> float:
        return self._clock.monotonic() + self._offset
