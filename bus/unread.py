"""Counts the bytes that one side of a pair of sockets has sent and the other one may not have read; pure.

ZeroMQ bounds its queues by the number of messages. What a caller has sent is read once an answer to the same or a later
request is here; what an answerer has sent, once the caller's next request or reminder states how much it has taken.
"""

from dataclasses import dataclass

MAX_UNREAD_BYTES = 32 << 20  # of bodies, in one direction between two processes


@dataclass
class Unread:
    """The bytes that one side has `sent`, and the other one has `read`, since the pair was connected."""

    sent: int = 0
    read: int = 0

    def fits(self, size: int) -> bool:
        """Return whether a body of `size` bytes may be sent now. One of any size may where nothing is unread."""
        unread = self.sent - self.read
        return unread <= 0 or unread + size <= MAX_UNREAD_BYTES

    def note_read(self, position: int) -> None:
        """Note that the other side has read all up to this position of `sent`."""
        self.read = max(self.read, position)
