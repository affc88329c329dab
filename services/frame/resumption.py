"""Notices that the machine was suspended, and calls the parts of a service whose work has become due meanwhile.

CLOCK_MONOTONIC stands still while a machine is suspended, and CLOCK_BOOTTIME does not. So time limits, back-offs and
the silence of other processes go on after a suspension as if it had not been. What depends on time outside of this
machine, such as a lease, a token or a connection, is looked at now, and not when a timer ends. The clocks are compared
whenever the process sends a beat, which costs no wake-up of its own.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bus.beat import next_beat_in

log = logging.getLogger(__name__)

MIN_SUSPENDED_SECONDS = 2.0  # a shorter suspension delays nothing that matters
_MAX_READING_SECONDS = 0.5  # between the first and the last reading of the clocks

OnResume = Callable[[float], None]  # gets the seconds for which the machine was suspended


def suspended_since_boot(read: Callable[[int], float] = time.clock_gettime) -> float:
    """Return the seconds for which the machine was suspended since its boot. `read` returns the time of a clock. A
    process may be stopped between two readings, so both are repeated until they are of one moment."""
    while True:
        before, total, after = (read(c) for c in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC))
        if after - before < _MAX_READING_SECONDS:
            return total - after


class Resumption:
    """Calls those that have subscribed after each suspension. `suspended`: returns the seconds for which the machine
    was suspended since its boot."""

    def __init__(self, suspended: Callable[[], float] = suspended_since_boot) -> None:
        self._suspended = suspended
        self._known = suspended()
        self._callbacks: list[OnResume] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def subscribe(self, callback: OnResume) -> None:
        """Have the callback called in the event loop after each suspension. One that raises keeps no other from its
        work."""
        self._callbacks.append(callback)

    def subscribe_work(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have the work done as a task after each suspension."""

        def begin(_: float) -> None:
            task = asyncio.get_running_loop().create_task(work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

        self.subscribe(begin)

    def look(self) -> None:
        """Compare the clocks."""
        suspended = self._suspended()
        seconds, self._known = suspended - self._known, suspended
        if seconds < MIN_SUSPENDED_SECONDS:
            return
        log.info("the machine was suspended for %.0f s", seconds)
        for callback in self._callbacks:
            try:
                callback(seconds)
            except Exception:
                log.exception("the work that is due after a suspension failed")

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look from now on whenever the process sends a beat."""
        loop.call_later(next_beat_in(loop.time()), self._turn, loop)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the work that is due after a suspension failed", exc_info=error)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self.look()
        self.begin(loop)
