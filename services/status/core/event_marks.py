"""Marks which events are done, so that a restarted status continues where the earlier process stopped. Pure.

It keeps twice as many marks for each writer as its stream has events, so that no event of a stream loses its mark.
"""

from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from typing import Any

from bus.messages.event import MAX_KEPT_EVENTS
from bus.messages.streams import SERVICES

_MAX_REMEMBERED_EVENTS = 2 * MAX_KEPT_EVENTS  # of each writer


class EventAction(Enum):
    """Whether an event of a stream is new, or was handled before, and by which process."""

    NEW = "write it"
    DONE_BEFORE = "an earlier process did it"
    KNOWN = "this process took it before"


class EventMarks:
    """The marks of events that are done: written, or dropped for good."""

    def __init__(self, saved: Any = None) -> None:
        self._done: dict[str, OrderedDict[str, None]] = {writer: OrderedDict() for writer in SERVICES}
        self._taken: dict[str, OrderedDict[str, None]] = {writer: OrderedDict() for writer in SERVICES}
        for writer, identities in _readable(saved):
            for identity in identities:
                self.done(writer, identity)

    def take(self, writer: str, identity: str) -> EventAction:
        """Return what is to be done with an event that arrived. The second time it arrives it is KNOWN."""
        taken = self._taken[writer]
        if identity in taken:
            return EventAction.KNOWN
        _remember(taken, identity)
        return EventAction.DONE_BEFORE if identity in self._done[writer] else EventAction.NEW

    def done(self, writer: str, identity: str) -> None:
        """Mark an event as done."""
        _remember(self._done[writer], identity)

    def to_save(self) -> dict[str, list[str]]:
        """Return the marks by writer, the oldest first: at most about 50 KiB."""
        return {writer: list(done) for writer, done in self._done.items() if done}


def _remember(known: OrderedDict[str, None], identity: str) -> None:
    known[identity] = None
    known.move_to_end(identity)
    while len(known) > _MAX_REMEMBERED_EVENTS:
        known.popitem(last=False)


def _readable(saved: Any) -> list[tuple[str, list[str]]]:
    """Return the valid part of a record, by writer."""
    if not isinstance(saved, Mapping):
        return []
    found = [(writer, saved.get(writer)) for writer in SERVICES]
    return [
        (writer, [identity for identity in identities if isinstance(identity, str)])
        for writer, identities in found
        if isinstance(identities, list)
    ]
