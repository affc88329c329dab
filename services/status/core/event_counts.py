"""Counts how often each kind of event was recorded and as which object, so that a restarted status continues the
counts. Pure; pods.md 13.1.

It counts only events that are done, so that an event which a process has not sent is counted by the next process. A
kind that is forgotten here is counted from 1 again, as every kind is when a Go kubelet restarts.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

MAX_KINDS = 2048  # more than there are events on all streams
_END_OF_TIME = 2.0**33  # wall seconds


class RecordedEvent(Struct, frozen=True):
    """The Event object of one kind: its name, how often it happened, and when first (wall seconds)."""

    name: str
    count: int
    first_time: float


class EventCounts:
    """The counts of all kinds of events. `saved`: what `to_save` returned in the earlier process; invalid entries are
    left out."""

    def __init__(self, saved: Any = None) -> None:
        self._known: OrderedDict[str, RecordedEvent] = OrderedDict()
        for entry in saved if isinstance(saved, list) else []:
            match entry:
                case [str(key), str(name), int(count), float(first) | int(first)] if (
                    name and count > 0 and 0 <= first < _END_OF_TIME
                ):
                    self._remember(key, RecordedEvent(name, count, first))
        self.earlier: Mapping[str, RecordedEvent] = dict(self._known)

    def add(self, key: str, recorded: RecordedEvent, number: int) -> None:
        """Add `number` events that are done. `recorded`: the object, whose name and first time count where they are the
        first ones of their kind."""
        known = self._known.get(key)
        count = number + (known.count if known is not None and known.name == recorded.name else 0)
        self._remember(key, RecordedEvent(recorded.name, count, recorded.first_time))

    def to_save(self) -> list[list[str | int | float]]:
        """Return the counts in the order of their last events, the oldest first: at most about 250 KiB."""
        return [[key, known.name, known.count, known.first_time] for key, known in self._known.items()]

    def _remember(self, key: str, recorded: RecordedEvent) -> None:
        self._known[key] = recorded
        self._known.move_to_end(key)
        if len(self._known) > MAX_KINDS:
            self._known.popitem(last=False)
