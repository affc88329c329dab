"""The owner's side of a stream as a service sees it: typed values in, encoded updates out to the publisher."""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from bus import codec
from bus.frames import Update
from bus.ledger import Ledger
from bus.messages.streams import Stream

T = TypeVar("T")

log = logging.getLogger(__name__)


class StreamOwner(Generic[T]):
    """Implements `bus.interface.OwnedStream`."""

    def __init__(self, stream: Stream[T], ledger: Ledger, publish: Callable[[Update], None]) -> None:
        self.stream, self.ledger = stream, ledger
        self._publish = publish
        self._values: dict[str, T] = {}

    def put(self, key: str, value: T, cause: str = "") -> None:
        """Give a key a value; sent within this turn of the loop unless it is what the key has already.

        Raises UnencodableError (MessageTooLargeError over 16 MiB), also logged; the key then keeps its former value.
        """
        encoded = self._encode(key, value)
        self._values[key] = value
        self._send(self.ledger.put(key, encoded, cause))

    def refresh(self, key: str, value: T) -> None:
        """Change what no follower in step needs: the value is in snapshots from now on, and no update is sent.

        Nothing happens for a key without a value. Raises as `put` does.
        """
        if key in self._values:
            encoded = self._encode(key, value)
            self._values[key] = value
            self.ledger.refresh(key, encoded)

    def delete(self, key: str, cause: str = "") -> None:
        """Take a key away; nothing happens when it has no value."""
        self._values.pop(key, None)
        self._send(self.ledger.delete(key, cause))

    def get(self, key: str) -> T | None:
        """The value last put under the key."""
        return self._values.get(key)

    def keys(self) -> tuple[str, ...]:
        """Every key that has a value now."""
        return self.ledger.keys()

    def mark_complete(self) -> None:
        """Everything there is has been put: from now on an absent key is a deleted one."""
        self._send(self.ledger.mark_complete())

    def _encode(self, key: str, value: T) -> bytes:
        try:
            return codec.encode(value, f"{self.stream.name} {key}")
        except codec.UnencodableError as error:
            log.error("bus: not published: %s", error)
            raise

    def _send(self, update: Update | None) -> None:
        if update is not None:
            self._publish(update)
