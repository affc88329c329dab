"""Measures one end of the bus: duration and errors of its requests, what it drops, and what it has to answer.

Drops are counted by kind, and each kind is logged at most once a minute, so that a broken peer does not fill the log. A
reason names the wrong place in a frame, never its content."""

import logging
from collections import Counter

from bus.answers import Answers
from shared.metrics.family import counter, gauge, histogram
from shared.metrics.registry import Registry
from shared.time.clock import Clock

DURATION = histogram(
    "bulkhead_bus_request_duration_seconds",
    "Time from a request to another process to its answer or its deadline.",
    "process",
    "service",
    "request",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0),
)
ERRORS = counter(
    "bulkhead_bus_request_errors_total",
    "Requests to another process without an answer, or refused.",
    "process",
    "service",
    "request",
)
UNDER_WAY = gauge(
    "bulkhead_bus_requests_in_progress", "Requests of other processes that wait for an answer.", "process", "request"
)
DROPPED = counter("bulkhead_bus_dropped_total", "Messages that were dropped.", "process", "kind")
GAPS = counter(
    "bulkhead_bus_gaps_total",
    "Snapshots requested again after a gap in a stream or a restart.",
    "process",
)
BEATS = counter("bulkhead_bus_beats_total", "Beats sent.", "process")

SNAPSHOT_AGAIN = "snapshot again"  # DropCounters counts gaps under this kind
LOG_SECONDS = 60.0  # between two lines about one kind

log = logging.getLogger(__name__)


class DropCounters:
    """Counts drops since the process began, by kind (`frame`, `value`, `request`, `answer`, `gap` …)."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}  # by kind: when it was last logged, and the count then

    def drop(self, kind: str, reason: object) -> None:
        """Count one dropped thing. Log it if this kind was not logged within the last minute."""
        self.counts[kind] += 1
        now = self._clock.monotonic()
        logged_at, count = self._logged.get(kind, (float("-inf"), 0))
        if now - logged_at >= LOG_SECONDS:
            self._logged[kind] = now, self.counts[kind]
            log.warning("bus: dropped a %s (%d since the last report): %s", kind, self.counts[kind] - count, reason)


class BusMetrics:
    """Has the instruments of one end of the bus."""

    def __init__(self, metrics: Registry, drops: DropCounters, answers: Answers) -> None:
        self._process, self._drops, self._answers = metrics.process, drops, answers
        self._duration, self._errors = metrics.histogram(DURATION), metrics.counter(ERRORS)
        self._in_progress, self._dropped = metrics.gauge(UNDER_WAY), metrics.counter(DROPPED)
        self._gaps, self._beats = metrics.counter(GAPS), metrics.counter(BEATS)
        metrics.before_collecting(self._measure)

    def answered(self, service: str, request: str, seconds: float, *, failed: bool) -> None:
        """Observe that a request ended."""
        self._duration.observe(seconds, self._process, service, request)
        if failed:
            self._errors.inc(self._process, service, request)

    def beat(self) -> None:
        """Count a beat that was sent."""
        self._beats.inc(self._process)

    def _measure(self) -> None:
        self._gaps.set_total(self._drops.counts[SNAPSHOT_AGAIN], self._process)
        for kind, count in self._drops.counts.items():
            if kind != SNAPSHOT_AGAIN:
                self._dropped.set_total(count, self._process, kind)
        for request, count in self._answers.in_progress().items():
            self._in_progress.set(count, self._process, request)
