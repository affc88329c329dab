"""Notices that an event loop stands still: a thread counts its own ticks since the loop last turned.

Ticks, not clock time: a process that was stopped and continued, or a machine that slept, has no ticks to count, so the
loop gets its turn first. Decides nothing about what to do then.
"""

import threading
from collections.abc import Callable

TICK_SECONDS = 5.0
LIMIT_TICKS = 6


class Standstill:
    """Pure: counts ticks without a turn."""

    def __init__(self, limit: int = LIMIT_TICKS) -> None:
        self._limit, self._ticks = limit, 0

    def turned(self) -> None:
        """The loop turned."""
        self._ticks = 0

    def tick(self) -> bool:
        """The thread woke once more; True when the loop has stood still for longer than the limit."""
        self._ticks += 1
        return self._ticks > self._limit


class Watchdog:
    """Calls `on_standstill` from its own thread when `turned` was not called for `limit` ticks."""

    def __init__(self, on_standstill: Callable[[], None], limit: int = LIMIT_TICKS, tick: float = TICK_SECONDS) -> None:
        self._on_standstill, self._tick = on_standstill, tick
        self._standstill = Standstill(limit)
        self._stopped = threading.Event()
        self.turned = self._standstill.turned

    def start(self) -> None:
        """Begin to count."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Count no more."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._tick):
            if self._standstill.tick():
                self._on_standstill()
                return
