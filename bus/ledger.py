"""PURE. The owner's side of a stream: what it holds, and the number of every change.

Decides what counts as a change and what its number is; knows nothing of sockets, types of values, or followers.
"""

import msgspec

from bus.frames import Update, UpdateKind
from bus.messages.snapshot import Snapshot


class Ledger:
    """The state of one stream in one incarnation of its owner, as encoded values by key."""

    def __init__(self, stream: str, incarnation: str) -> None:
        self.stream = stream
        self.incarnation = incarnation
        self.number = 0  # of the newest update; 0 = none yet
        self.complete = False
        self._entries: dict[str, bytes] = {}

    def __repr__(self) -> str:
        standing = "complete" if self.complete else "incomplete"
        return f"<Ledger {self.stream} {self.incarnation}#{self.number} {len(self._entries)} keys {standing}>"

    def keys(self) -> tuple[str, ...]:
        """Return every key that has a value now."""
        return tuple(self._entries)

    def put(self, key: str, value: bytes, cause: str = "") -> Update | None:
        """Give a key this encoded value. None when it has that very value already: nothing to publish."""
        if self._entries.get(key) == value:
            return None
        self._entries[key] = value
        return self._next(UpdateKind.PUT, key, value, cause)

    def refresh(self, key: str, value: bytes) -> None:
        """Give a key that has a value another one that only snapshots carry from now on."""
        if key in self._entries:
            self._entries[key] = value

    def delete(self, key: str, cause: str = "") -> Update | None:
        """Take a key away. None when it has no value."""
        if self._entries.pop(key, None) is None:
            return None
        return self._next(UpdateKind.DELETE, key, b"", cause)

    def mark_complete(self) -> Update | None:
        """Everything there is has been put in this incarnation. None when it was marked before."""
        if self.complete:
            return None
        self.complete = True
        return self._next(UpdateKind.COMPLETE)

    def snapshot(self) -> Snapshot:
        """Everything, as of the newest number."""
        return Snapshot(
            stream=self.stream,
            incarnation=self.incarnation,
            number=self.number,
            complete=self.complete,
            entries={key: msgspec.Raw(value) for key, value in self._entries.items()},
        )

    def _next(self, kind: UpdateKind, key: str = "", value: bytes = b"", cause: str = "") -> Update:
        self.number += 1
        return Update(
            stream=self.stream,
            incarnation=self.incarnation,
            number=self.number,
            kind=kind,
            key=key,
            value=value,
            cause=cause,
        )
