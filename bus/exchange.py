"""One request as its caller sees it: what to send at each turn until the answer is here. Pure: no sockets, no time.

The body is sent once, then reminders. It is sent again only when the other side answers that it does not know the
request, for what a process had taken before it was killed is gone without an error.
"""

from bus import frames
from bus.frames import Frames, RequestHead

REMIND_SECONDS = 0.25  # from one turn to the next


class Exchange:
    """Call `next` at each turn, `refused` when its frames could not be sent, `unknown` when the answer is that."""

    def __init__(self, head: RequestHead, body: bytes) -> None:
        self.head = head
        self._message, self._reminder = frames.write_request(head, body), frames.write_reminder(head)
        self._sent = self._reminded = False

    def next(self) -> Frames:
        """The frames to be sent now: the request with its body, or a reminder of it."""
        self._reminded, self._sent = self._sent, True
        return self._reminder if self._reminded else self._message

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
