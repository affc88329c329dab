"""Work in progress and how long it may go without progress; the watchdog's thread reads it and ends a hung process.

Work that waits for something outside of this process (a runtime, a disk, another process, a hook) reports it with
`waiting_for`, and is not overdue meanwhile, or only once the wait is longer than what it waits for allows itself. So
work is overdue only because of a programming error, and a restart clears it. Time is counted in ticks of the watchdog:
a process that was stopped and continued, or a machine that slept, has no ticks to count.
"""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

TICK_SECONDS = 5.0
BLOCKED_SECONDS = 60.0  # after which a wait that is `reported` is a trouble
MAX_STALL_SECONDS = 300.0  # without progress, where nothing outside is waited for

_current: ContextVar["Work | None"] = ContextVar("work", default=None)


@dataclass(eq=False)
class _Wait:
    what: str
    began: int
    limit: float  # ticks
    reported: bool


@dataclass(eq=False)
class Work:
    """One piece of work of one process; made by `Deadlines.begin`. Its methods may be called from any thread."""

    name: str
    limit: float  # ticks
    deadlines: "Deadlines"
    progressed_at: int
    waits: set[_Wait] = field(default_factory=set)

    def progressed(self) -> None:
        """Note that a step is done: the time without progress begins again."""
        self.progressed_at = self.deadlines.ticks

    def ended(self) -> None:
        """Note that this work is done, so that its deadline no longer counts."""
        self.deadlines.forget(self)

    def begin_wait(self, what: str, seconds: float | None, *, reported: bool = False) -> _Wait:
        """Begin a wait for something outside, of at most `seconds`, None = without limit. `reported`: see
        `Deadlines.blocked`."""
        limit = math.inf if seconds is None else self.deadlines.in_ticks(seconds)
        wait = _Wait(what, self.deadlines.ticks, limit, reported)
        self.waits.add(wait)
        return wait

    def end_wait(self, wait: _Wait) -> None:
        """End the wait."""
        self.waits.discard(wait)
        self.progressed()

    def complaint(self, now: int) -> str | None:
        """Return why the work is overdue at tick `now`, or None."""
        waits = self.waits.copy()
        late = [wait.what for wait in waits if now - wait.began > wait.limit]
        if late:
            return f"{self.name} has waited for {late[0]} longer than that may take"
        if not waits and now - self.progressed_at > self.limit:
            return f"{self.name} has made no progress for {self.deadlines.in_seconds(self.limit):.0f} s"
        return None


class Deadlines:
    """All work of one process."""

    def __init__(self, tick_seconds: float = TICK_SECONDS) -> None:
        self.ticks = 0
        self._tick_seconds = tick_seconds
        self._works: set[Work] = set()
        self._lock = threading.Lock()

    def begin(self, name: str, seconds: float = MAX_STALL_SECONDS) -> Work:
        """Begin work that makes progress at least every `seconds`, not counting waits for something outside."""
        work = Work(name, self.in_ticks(seconds), self, self.ticks)
        with self._lock:
            self._works.add(work)
        return work

    def forget(self, work: Work) -> None:
        """Forget this work, so that its deadline no longer counts."""
        with self._lock:
            self._works.discard(work)

    def tick(self) -> None:
        """Count a tick of the watchdog."""
        self.ticks += 1

    def overdue(self) -> str | None:
        """Return a line about the work that is overdue for longest; None = none is."""
        with self._lock:
            works = sorted(self._works, key=lambda work: work.progressed_at)
        return next((line for work in works if (line := work.complaint(self.ticks)) is not None), None)

    def blocked(self, seconds: float = BLOCKED_SECONDS) -> str | None:
        """Return one line about the work that has waited longest, and for at least so long, in a wait that is
        `reported`: for a blocking call, for a disk.
        """
        with self._lock:
            works = list(self._works)
        limit = self.in_ticks(seconds)
        waits = sorted(
            (wait.began, f"{work.name} waits for {wait.what}")
            for work in works
            for wait in work.waits.copy()
            if wait.reported
        )
        late = [line for began, line in waits if self.ticks - began > limit]
        more = f", {len(late) - 1} more as well" if len(late) > 1 else ""
        return f"{late[0]} that does not return{more}" if late else None

    def in_ticks(self, seconds: float) -> float:
        """Return the number of ticks that take at least `seconds`."""
        return math.ceil(seconds / self._tick_seconds)

    def in_seconds(self, ticks: float) -> float:
        """Return the seconds of so many ticks."""
        return ticks * self._tick_seconds


def work_on(work: Work) -> None:
    """Assign this task, and every task that it starts from now on, to `work`."""
    _current.set(work)


@contextmanager
def waiting_for(what: str, seconds: float | None = None, *, reported: bool = False) -> Iterator[None]:
    """Note that the block waits for something outside of this process, which its own limits end after so many seconds;
    None = no limit, `reported` = a long wait is a trouble (`Deadlines.blocked`). Outside of any work it does
    nothing."""
    work = _current.get()
    if work is None:
        yield
        return
    wait = work.begin_wait(what, seconds, reported=reported)
    try:
        yield
    finally:
        work.end_wait(wait)


@asynccontextmanager
async def in_turn(lock: asyncio.Lock, what: str) -> AsyncIterator[None]:
    """Hold the lock, having waited for those who hold it while they wait for something outside."""
    with waiting_for(what):
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


class WorkThreads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`: the work that calls something blocking waits for it, as long as it takes. A
    system call that hangs for one pod is no reason to end the process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run the call in a thread, as ThreadPoolExecutor does."""
        future = super().submit(fn, *args, **kwargs)
        if (work := _current.get()) is not None:
            wait = work.begin_wait("a blocking call", None, reported=True)
            future.add_done_callback(lambda _: work.end_wait(wait))
        return future
