"""Which Secret or ConfigMap is read next: what a request waits for, then the oldest that is to be refreshed; pure.

Refreshes are spread: one at a time, at most so many a second, and no object more often than each `period` seconds.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from shared.podspec.references import Reference


@dataclass
class ReadOrder:
    """`refreshes_a_second`: at most; 0 = none. Times are seconds of one monotonic clock."""

    refreshes_a_second: float
    shortest_period: float  # seconds between two refreshes of one object
    _needed: dict[Reference, None] = field(default_factory=dict)  # in the order in which they were asked for
    _read_at: "OrderedDict[Reference, float]" = field(default_factory=OrderedDict)  # of those to refresh, oldest first
    _reading: set[Reference] = field(default_factory=set)
    _next_refresh: float = float("-inf")

    def need(self, reference: Reference) -> None:
        """A request waits for it."""
        self._needed.setdefault(reference)

    def refresh(self, reference: Reference, *, wanted: bool) -> None:
        """From now on it is refreshed, or not; one that was never read is due at once."""
        if not wanted or not self.refreshes_a_second:
            self._read_at.pop(reference, None)
        elif reference not in self._read_at:
            self._read_at[reference] = float("-inf")
            self._read_at.move_to_end(reference, last=False)

    def forget(self, reference: Reference) -> None:
        """No pod names it any more."""
        self._needed.pop(reference, None)
        self._read_at.pop(reference, None)
        self._reading.discard(reference)

    def is_refreshed(self, reference: Reference) -> bool:
        """It is read now and then by itself."""
        return reference in self._read_at

    def period(self, time_to_live: float) -> float:
        """Seconds between two refreshes of one object, at most; `time_to_live` as our Node has it, seconds."""
        spread = len(self._read_at) / self.refreshes_a_second if self.refreshes_a_second else 0.0
        return max(self.shortest_period, time_to_live, spread)

    def take(self, now: float, time_to_live: float) -> Reference | None:
        """The object to read now; None = none. It counts as being read until `done`."""
        reference = next((each for each in self._needed if each not in self._reading), None)
        if reference is not None:
            del self._needed[reference]
        elif (due := self._refresh_due(time_to_live)) is not None and due <= now:
            reference = next(iter(self._read_at))
            self._next_refresh = max(now, self._next_refresh) + 1 / self.refreshes_a_second
        else:
            return None
        self._reading.add(reference)
        if reference in self._read_at:
            self._read_at[reference] = now
            self._read_at.move_to_end(reference)
        return reference

    def done(self, reference: Reference) -> None:
        """It was read, or could not be."""
        self._reading.discard(reference)

    def next_at(self, time_to_live: float) -> float | None:
        """When `take` has something at the earliest, if nothing else is asked for; None = never."""
        if any(each not in self._reading for each in self._needed):
            return float("-inf")
        return self._refresh_due(time_to_live)

    def __len__(self) -> int:
        return len(self._needed) + len(self._reading)

    def _refresh_due(self, time_to_live: float) -> float | None:
        oldest = next(iter(self._read_at.items()), None)
        if oldest is None or oldest[0] in self._reading:
            return None
        # Not a whole `period` after its last read: where the rate is what bounds it, the round begins at once.
        return max(oldest[1] + max(self.shortest_period, time_to_live), self._next_refresh)
