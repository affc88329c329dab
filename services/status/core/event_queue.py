"""Queues Event objects that wait to be written, each once and in its newest form, at most a thousand. Pure.

It is a queue of objects and not of events: an event that happens a hundred times while the API server is away costs one
request.
"""

from collections import OrderedDict

from msgspec import Struct

from bus.messages.event import MAX_KEPT_EVENTS
from services.status.core.event_correlation import CorrelatedEvent
from shared.model.frozen_copy import replace
from shared.model.objects import Object

MAX_EVENTS = 1000
MAX_TRIES = 12

Occurrence = tuple[str, str]
"""(writer, identity) of an event."""


class EventWrite(Struct, frozen=True):
    """One Event object to be written. `is_new`: as far as we know, the API server does not have it; `correlated`: the
    newest of its events; `number`: how many events it is about."""

    namespace: str
    name: str
    body: Object
    is_new: bool
    occurrences: tuple[Occurrence, ...]  # the newest of the events that it is about
    correlated: CorrelatedEvent
    number: int = 1
    tries: int = 0


class EventQueue:
    """A queue of Event objects, first in, first out. When it is full, new objects are refused."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[str, str], EventWrite] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, write: EventWrite) -> bool:
        """Add an object, or join it with the one that waits; return False if the queue is full."""
        key = (write.namespace, write.name)
        waiting = self._waiting.get(key)
        if waiting is None and len(self._waiting) >= MAX_EVENTS:
            return False
        self._waiting[key] = write if waiting is None else _joined(waiting, write)
        return True

    def take(self) -> EventWrite | None:
        """Remove and return the oldest object; None = the queue is empty."""
        return self._waiting.popitem(last=False)[1] if self._waiting else None

    def bring_back(self, write: EventWrite) -> bool:
        """Put an object that could not be written back to the front, joined with a newer form of it. Return False if
        that was its last try."""
        if write.tries + 1 >= MAX_TRIES:
            return False
        again = replace(write, tries=write.tries + 1)
        key = (write.namespace, write.name)
        newer = self._waiting.get(key)
        self._waiting[key] = again if newer is None else _joined(again, newer)
        self._waiting.move_to_end(key, last=False)
        return True


def _joined(older: EventWrite, newer: EventWrite) -> EventWrite:
    occurrences = (*older.occurrences, *newer.occurrences)[-MAX_KEPT_EVENTS:]
    number = older.number + newer.number
    is_new = older.is_new or newer.is_new
    return replace(newer, is_new=is_new, occurrences=occurrences, number=number, tries=older.tries)
