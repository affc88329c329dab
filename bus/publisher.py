"""The XPUB socket: sends what this service owns, and hears of every new subscriber so that a beat can greet it."""

from collections.abc import Callable

import zmq

from bus.context import Context, bind, new_socket, send_now
from bus.drops import Drops
from bus.frames import Frames

SUBSCRIBE = 1  # first byte of a subscription message


class Publisher:
    """Publishes to whoever subscribed; a subscriber that does not keep up loses messages and finds out by number."""

    def __init__(self, context: Context, on_subscribed: Callable[[], None], drops: Drops) -> None:
        self._socket = new_socket(context, zmq.XPUB, linger=0)
        # Without it a second follower of a topic, or one that reconnects beside another, would not be greeted.
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._on_subscribed = on_subscribed
        self._drops = drops

    def bind(self, address: str) -> None:
        """Begin to publish at this ipc address; hold the service's lock."""
        bind(self._socket, address)

    def send(self, frames: Frames) -> None:
        """Put the frames on the wire now."""
        error = send_now(self._socket, frames)
        if error is not None:
            self._drops.drop("publication", error)

    async def run(self) -> None:
        """Hear subscriptions until cancelled."""
        while True:
            message = await self._socket.recv()
            if message and message[0] == SUBSCRIBE:
                self._on_subscribed()

    def close(self) -> None:
        """Forget what is unsent."""
        self._socket.close()
