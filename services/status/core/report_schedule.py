"""When the node's status is due although nothing has changed (node.md 1.5). Seconds of a monotonic clock."""

from dataclasses import dataclass

ATTEMPTS = 5  # of one status sync
SYNC_JITTER = 0.04
PROMPT_WRITES = 5  # changes written at once between two periods; more wait for the period


@dataclass
class ReportSchedule:
    """`frequency`: nodeStatusReportFrequency."""

    frequency: float
    last: float | None = None
    delay: float = 0.0

    def due(self, now: float) -> bool:
        """Whether to report even without a change."""
        return self.last is None or now - self.last >= self.frequency + self.delay

    def reported(self, now: float, *, changed: bool, chance: float) -> None:
        """A patch was accepted. `chance`, of [0, 1), spreads the reports of many nodes that started together."""
        self.delay = (chance - 0.5) * self.frequency if changed or self.last is None else 0.0
        self.last = now
