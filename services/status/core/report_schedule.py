"""Decides when the node's status is due although nothing has changed (node.md 1.5). Times are monotonic seconds."""

from dataclasses import dataclass

MAX_ATTEMPTS = 5  # of one status sync
SYNC_JITTER = 0.04  # of the interval
MAX_PROMPT_WRITES = 5  # changes that are written at once between two periods; further ones wait for the period


@dataclass
class ReportSchedule:
    """The schedule of reports without changes. `frequency`: nodeStatusReportFrequency in seconds."""

    frequency: float
    last: float | None = None
    delay: float = 0.0

    def due(self, now: float) -> bool:
        """Return whether the status is to be reported even without a change."""
        return self.last is None or now - self.last >= self.frequency + self.delay

    def reported(self, now: float, *, changed: bool, chance: float) -> None:
        """Note that a patch was accepted. `chance`, in [0, 1), spreads the reports of nodes that started together."""
        self.delay = (chance - 0.5) * self.frequency if changed or self.last is None else 0.0
        self.last = now
