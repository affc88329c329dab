"""Decides what the caller of one request sends at each turn until the answer arrives, and how much may be unread. Pure.

The body is sent once, then reminders. It is sent again only when the other side answers that it does not know the
request, because what a process had received before it was killed is lost without an error. A reminder also replaces a
body that must not be sent yet: its answer shows that the other side reads.

ZeroMQ limits its queues by the number of messages, `Unread` limits them by bytes."""

from dataclasses import dataclass

from bus import frames
from bus.frames import Frames, RequestHead
from shared.model.frozen_copy import replace

REMIND_SECONDS = 0.25  # between two turns
MAX_UNREAD_BYTES = 32 << 20  # of bodies, in one direction between two processes


@dataclass
class Unread:
    """Counts the bytes that one side has `sent`, and the other one has `read`, since the two were connected."""

    sent: int = 0
    read: int = 0

    def fits(self, size: int) -> bool:
        """Return whether a body of `size` bytes may be sent now. A body of any size may be sent where nothing is
        unread."""
        unread = self.sent - self.read
        return unread <= 0 or unread + size <= MAX_UNREAD_BYTES

    def note_read(self, position: int) -> None:
        """Note that the other side has read all up to this position of `sent`."""
        self.read = max(self.read, position)


class Exchange:
    """Decides the frames of one request. Call `next` at each turn, `refused` when its frames could not be sent, and
    `unknown` when the answer says that the request is unknown."""

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
        """Note that the frames from `next` were not sent."""
        self._sent = self._reminded

    def unknown(self) -> bool:
        """Note that the other side does not know the request. Return whether to send `next`, with the body again, at
        once: only once after each reminder, because many reminders may have waited for the same restarted process."""
        if not self._reminded:
            return False
        self._sent = self._reminded = False
        return True
