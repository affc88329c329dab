"""The XPUB socket: sends what this service owns, and receives every new subscription, which a beat answers."""

from collections.abc import Callable

import zmq

from bus.context import Context, bind, new_socket, send_now
from bus.drops import DropCounters
from bus.frames import Frames
from bus.inlet import Inlet
from bus.pieces import cut

SUBSCRIBE = b"\1"  # first byte of a subscription message


class Publisher:
    """Publishes to the subscribers. One that does not read has 1000 messages of 32 KiB waiting at most; it loses what
    follows and finds out by number."""

    def __init__(self, context: Context, on_subscribed: Callable[[], None], drops: DropCounters) -> None:
        self._socket = new_socket(context, zmq.XPUB, linger=0)
        # Without it a second follower of a topic, or one that reconnects beside another, would not be greeted.
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._on_subscribed = on_subscribed
        self._drops = drops
        self._inlet = Inlet(self._socket, self._take_subscription)

    def bind(self, address: str) -> None:
        """Begin to publish at this ipc address, and to receive subscriptions; hold the service's lock."""
        bind(self._socket, address)
        self._inlet.open()

    def send(self, frames: Frames) -> None:
        """Put the frames on the wire now."""
        for piece in cut(frames):
            if (error := send_now(self._socket, piece)) is not None:
                self._drops.drop("publication", error)
        self._inlet.look_again()

    def close(self) -> None:
        """Forget what is unsent."""
        self._inlet.close()
        self._socket.close()

    def _take_subscription(self, message: list[bytes]) -> None:
        if message[0][:1] == SUBSCRIBE:
            self._on_subscribed()
