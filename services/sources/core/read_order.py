"""Decides which Secret or ConfigMap is read next: one that a request waits for, else the oldest that is to be
refreshed; pure.

The pods whose objects requests wait for take turns of one read each, so that a pod which names very many delays no
other pod much. Refreshes are spread: one at a time, at most so many a second, and no object more often than each
`period` seconds.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from shared.podspec.references import Reference


@dataclass
class ReadOrder:
    """The order of reads. `refreshes_a_second`: the limit; 0 = none. Times are seconds of one monotonic clock."""

    refreshes_a_second: float
    shortest_period: float  # seconds between two refreshes of one object
    _needed: dict[Reference, dict[str, None]] = field(default_factory=dict)  # object -> the pods that name it
    # The objects that are needed and not being read, by pod, in the order of the requests. The pod whose turn is next
    # is the first one.
    _turns: "OrderedDict[str, OrderedDict[Reference, None]]" = field(default_factory=OrderedDict)
    _read_at: "OrderedDict[Reference, float]" = field(default_factory=OrderedDict)  # of those to refresh, oldest first
    _reading: set[Reference] = field(default_factory=set)
    _next_refresh: float = float("-inf")

    def need(self, reference: Reference, pods: Iterable[str]) -> None:
        """Note that a request waits for the object. It is read at a turn of any of the `pods` (UIDs, at least one) that
        name it."""
        self._needed.setdefault(reference, {}).update(dict.fromkeys(pods))
        if reference not in self._reading:
            self._queue(reference)

    def refresh(self, reference: Reference, *, wanted: bool) -> None:
        """Set whether the object is refreshed from now on; an object that was never read is due at once."""
        if not wanted or not self.refreshes_a_second:
            self._read_at.pop(reference, None)
        elif reference not in self._read_at:
            self._read_at[reference] = float("-inf")
            self._read_at.move_to_end(reference, last=False)

    def forget(self, reference: Reference) -> None:
        """Forget an object that no pod names any more."""
        self._unqueue(reference)
        self._read_at.pop(reference, None)
        self._reading.discard(reference)

    def is_refreshed(self, reference: Reference) -> bool:
        """Return whether the object is refreshed without requests."""
        return reference in self._read_at

    def period(self, time_to_live: float) -> float:
        """Return the seconds between two refreshes of one object. `time_to_live`: the seconds that our Node names."""
        spread = len(self._read_at) / self.refreshes_a_second if self.refreshes_a_second else 0.0
        return max(self.shortest_period, time_to_live, spread)

    def take(self, now: float, time_to_live: float) -> Reference | None:
        """Return the object to read now; None = none. It counts as being read until `done`."""
        if self._turns:
            pod, own = next(iter(self._turns.items()))
            reference = next(iter(own))
            self._turns.move_to_end(pod)
            self._unqueue(reference)
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
        """Note that the object was read, or could not be read."""
        self._reading.discard(reference)
        if reference in self._needed:
            self._queue(reference)

    def next_at(self, time_to_live: float) -> float | None:
        """Return when `take` next returns an object if nothing else is requested; None = never."""
        if self._turns:
            return float("-inf")
        return self._refresh_due(time_to_live)

    def __len__(self) -> int:
        return len(self._needed) + len(self._reading)

    def _queue(self, reference: Reference) -> None:
        for pod in self._needed[reference]:
            self._turns.setdefault(pod, OrderedDict()).setdefault(reference)

    def _unqueue(self, reference: Reference) -> None:
        for pod in self._needed.pop(reference, ()):
            own = self._turns.get(pod, OrderedDict())
            own.pop(reference, None)
            if not own:
                self._turns.pop(pod, None)

    def _refresh_due(self, time_to_live: float) -> float | None:
        oldest = next(iter(self._read_at.items()), None)
        if oldest is None or oldest[0] in self._reading:
            return None
        # This is not `period` after the object's last read: where the rate is the limit, the next round begins at once.
        return max(oldest[1] + max(self.shortest_period, time_to_live), self._next_refresh)
