"""What the bus had to drop, counted by kind and logged at most once a minute each: a broken peer must not fill the log.

Knows no frame's content: reasons name the wrong place in a frame, never its content.
"""

import logging
from collections import Counter

from shared.clock import Clock

LOG_INTERVAL = 60.0  # seconds

log = logging.getLogger(__name__)


class DropCounters:
    """Counters since the process began, by kind (`frame`, `value`, `request`, `answer`, `gap` …)."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}  # kind -> when last, and the count then

    def drop(self, kind: str, reason: object) -> None:
        """Count one dropped thing; log it if this kind was not logged within the last minute."""
        self.counts[kind] += 1
        now = self._clock.monotonic()
        logged_at, count = self._logged.get(kind, (float("-inf"), 0))
        if now - logged_at >= LOG_INTERVAL:
            self._logged[kind] = now, self.counts[kind]
            log.warning("bus: dropped a %s (%d since the last report): %s", kind, self.counts[kind] - count, reason)
