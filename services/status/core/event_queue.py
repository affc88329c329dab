"""Event objects that wait to be written, each once and in its newest form, at most a thousand. Pure.

A queue of objects and not of events: what is counted up a hundred times while the API server is away is one request.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace

from bus.messages.event import KEPT
from services.status.core.event_correlation import CorrelatedEvent
from shared.model.objects import Object

LIMIT = 1000
TRIES = 12

Occurrence = tuple[str, str]
"""(writer, identity) of an event."""


@dataclass(frozen=True)
class EventWrite:
    """One Event object to be written. `is_new`: as far as we know the API server does not have it.

    `correlated` is the newest event it is about, `number` how many they are.
    """

    namespace: str
    name: str
    body: Object
    is_new: bool
    occurrences: tuple[Occurrence, ...]  # the events it is about, the newest of them
    correlated: CorrelatedEvent
    number: int = 1
    tries: int = 0


class EventQueue:
    """First in, first out; when it is full the newest are not taken."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[str, str], EventWrite] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, write: EventWrite) -> bool:
        """False = it is full."""
        key = (write.namespace, write.name)
        waiting = self._waiting.get(key)
        if waiting is None and len(self._waiting) >= LIMIT:
            return False
        self._waiting[key] = write if waiting is None else _joined(waiting, write)
        return True

    def take(self) -> EventWrite | None:
        """The oldest; its owner brings it back or not."""
        return self._waiting.popitem(last=False)[1] if self._waiting else None

    def bring_back(self, write: EventWrite) -> bool:
        """It could not be written: first again, in what may be a newer form by now. False = that was its last try."""
        if write.tries + 1 >= TRIES:
            return False
        again = replace(write, tries=write.tries + 1)
        key = (write.namespace, write.name)
        newer = self._waiting.get(key)
        self._waiting[key] = again if newer is None else _joined(again, newer)
        self._waiting.move_to_end(key, last=False)
        return True


def _joined(older: EventWrite, newer: EventWrite) -> EventWrite:
    occurrences = (*older.occurrences, *newer.occurrences)[-KEPT:]
    number = older.number + newer.number
    is_new = older.is_new or newer.is_new
    return replace(newer, is_new=is_new, occurrences=occurrences, number=number, tries=older.tries)
