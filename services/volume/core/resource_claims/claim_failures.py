"""Counts failures in a row, and decides when to try again: to prepare the claims of a pod, or to unprepare a claim;
pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.time.backoff import Backoff

RETRIES = Backoff(initial=1.0, cap=60.0)


@dataclass
class Failures:
    """Has the failures in a row of one piece of work. `began`, `not_before`: seconds of the monotonic clock; `errors`:
    the text, and since when (seconds since the epoch), by what failed."""

    count: int = 0
    began: float = 0.0
    not_before: float = 0.0
    errors: dict[str, tuple[str, float]] = field(default_factory=dict)

    def failed(self, errors: Mapping[str, str], now: float, wall: float) -> None:
        """Note a failure; the same text as before keeps its time."""
        self.began = self.began if self.count else now
        self.count += 1
        self.not_before = now + RETRIES.delay(self.count)
        before = self.errors
        self.errors = {
            name: before[name] if name in before and before[name][0] == text else (text, wall)
            for name, text in errors.items()
        }

    def retry(self) -> None:
        """Let the next attempt be made at once."""
        self.count, self.not_before = min(self.count, 1), 0.0
