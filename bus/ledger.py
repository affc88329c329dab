"""PURE. Keeps the owner's side of a stream: its values, and the number of every change.

Decides what counts as a change and which number it gets; knows nothing of sockets, types of values, or followers."""

import msgspec

from bus.frames import Update, UpdateKind
from bus.messages.snapshot import Snapshot


class Ledger:
    """The state of one stream in one incarnation of its owner, as encoded values by key."""

    def __init__(self, stream: str, incarnation: str) -> None:
        self.stream = stream
        self.incarnation = incarnation
        self.number = 0  # the number of the newest update; 0 = none yet
        self.complete = False
        self._entries: dict[str, bytes] = {}

    def __repr__(self) -> str:
        standing = "complete" if self.complete else "incomplete"
        return f"<Ledger {self.stream} {self.incarnation}#{self.number} {len(self._entries)} keys {standing}>"

    def keys(self) -> tuple[str, ...]:
        """Return every key that has a value now."""
        return tuple(self._entries)

    def put(self, key: str, value: bytes, cause: str = "") -> Update | None:
        """Give a key this encoded value. Return the update to publish, or None when the value is unchanged."""
        if self._entries.get(key) == value:
            return None
        self._entries[key] = value
        return self._next(UpdateKind.PUT, key, value, cause)

    def refresh(self, key: str, value: bytes) -> None:
        """Give a key that has a value another value, which only snapshots carry from now on."""
        if key in self._entries:
            self._entries[key] = value

    def delete(self, key: str, cause: str = "") -> Update | None:
        """Delete a key. Return the update to publish, or None when the key has no value."""
        if self._entries.pop(key, None) is None:
            return None
        return self._next(UpdateKind.DELETE, key, b"", cause)

    def mark_complete(self) -> Update | None:
        """Mark everything there is as listed in this incarnation. Return None when it was marked before."""
        if self.complete:
            return None
        self.complete = True
        return self._next(UpdateKind.COMPLETE)

    def snapshot(self) -> Snapshot:
        """Return the whole stream, as of the newest number."""
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
