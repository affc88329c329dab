"""What the caller of one request sends at each turn until the answer is here, and how much may be unread. Pure.

The body is sent once, then reminders. It is sent again only when the other side answers that it does not know the
request, for what a process had taken before it was killed is gone without an error. So a reminder also takes the place
of a body that must not be sent yet: its answer shows that the other side reads.

ZeroMQ bounds its queues by the number of messages, `Unread` by bytes. What a caller has sent is read once an answer to
the same or a later request is here; what an answerer has sent, once the caller's next request or reminder states how
much it has taken.
"""

from dataclasses import dataclass, replace

from bus import frames
from bus.frames import Frames, RequestHead

REMIND_SECONDS = 0.25  # from one turn to the next
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


class Exchange:
    """Call `next` at each turn, `refused` when its frames could not be sent, `unknown` when the answer is that."""

    def __init__(self, head: RequestHead, body: bytes) -> None:
        self.head, self.body = head, body
        self._sent = self._reminded = False

    def next(self, *, fits: bool = True, taken: int = -1) -> Frames:
        """Return the frames to be sent now: the request with its body, or a reminder of it. `fits` False: the body must
        not be sent now; `taken`: bytes of answers, for the head."""
        self._reminded, self._sent = self._sent or not fits, True
        head = replace(self.head, taken=taken)
        return frames.write_reminder(head) if self._reminded else frames.write_request(head, self.body)

    def refused(self) -> None:
        """The frames that `next` gave were not sent."""
        self._sent = self._reminded

    def unknown(self) -> bool:
        """The other side does not know the request. Whether `next`, with the body again, is to be sent at once: only
        once after each reminder, for many reminders may have waited for the same restarted process."""
        if not self._reminded:
            return False
        self._sent = self._reminded = False
        return True
