"""Notices that a process hangs: a thread looks at the event loop's turns and at work that is overdue.

Ticks, not clock time: a process that was stopped and continued, or a machine that slept, has no ticks to count, so the
loop gets its turn first. Decides nothing about what to do then.
"""

import faulthandler
import signal
import threading
from collections.abc import Callable

from shared.process.deadlines import TICK_SECONDS, Deadlines

MAX_SILENT_TICKS = 6  # of the thread without a turn of the loop
MAX_BUSY_SECONDS = 60.0  # of processor time that the process may use without letting this thread run once


class StallDetector:
    """Pure: counts ticks without a turn."""

    def __init__(self, limit: int = MAX_SILENT_TICKS) -> None:
        self._limit, self._ticks = limit, 0

    def turned(self) -> None:
        """Note that the loop has turned."""
        self._ticks = 0

    def tick(self) -> bool:
        """Count a tick of the thread. Return True when the loop has not turned for longer than the limit."""
        self._ticks += 1
        return self._ticks > self._limit


class Watchdog:
    """Calls `on_hang` with the reason, once, from its own thread: when `turned` was not called for `limit` ticks, or
    when work is overdue. `busy`: seconds of processor time after which SIGPROF comes if the thread got no turn
    meanwhile (see `end_when_busy`), 0 = never."""

    def __init__(
        self,
        on_hang: Callable[[str], None],
        deadlines: Deadlines,
        limit: int = MAX_SILENT_TICKS,
        tick: float = TICK_SECONDS,
        busy: float = 0.0,
    ) -> None:
        self._on_hang, self._deadlines, self._tick, self._busy = on_hang, deadlines, tick, busy
        self._standstill = StallDetector(limit)
        self._stopped = threading.Event()
        self.turned = self._standstill.turned

    def start(self) -> None:
        """Begin to count."""
        signal.setitimer(signal.ITIMER_PROF, self._busy)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Count no more."""
        self._stopped.set()

    def _watch(self) -> None:
        reason = None
        while reason is None and not self._stopped.wait(self._tick):
            signal.setitimer(signal.ITIMER_PROF, self._busy)
            self._deadlines.tick()
            hangs = self._standstill.tick()
            reason = "the event loop did not turn for too long" if hangs else self._deadlines.overdue()
        signal.setitimer(signal.ITIMER_PROF, 0)
        if reason is not None:
            self._on_hang(reason)


def end_when_busy() -> None:
    """Let SIGPROF, which comes when this process computes and the watchdog's thread gets no turn, write all stacks to
    the standard error and end the process. No Python runs for that: the interpreter's lock may be held."""
    faulthandler.register(signal.SIGPROF, file=2, all_threads=True, chain=True)
