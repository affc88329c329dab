"""The SUB socket: one for all the services this one follows; a restarted owner is found by reconnecting."""

from collections.abc import Callable, Sequence

import zmq

from bus.context import Context, new_socket, reconnect_quickly
from bus.inlet import Inlet
from bus.pieces import Joiner


class Subscriber:
    """Hands every arriving frame to `receive`, which must not raise."""

    def __init__(self, context: Context, receive: Callable[[Sequence[bytes]], None]) -> None:
        self._socket = new_socket(context, zmq.SUB, linger=0)
        reconnect_quickly(self._socket)
        self._receive, self._joiner = receive, Joiner()
        self._inlet = Inlet(self._socket, self._take)

    def subscribe(self, topic: bytes) -> None:
        """Want this topic of every service connected to."""
        self._socket.setsockopt(zmq.SUBSCRIBE, topic)

    def connect(self, address: str) -> None:
        """Listen to the service at this address, now or whenever it appears."""
        self._socket.connect(address)

    def open(self) -> None:
        """Receive from now on."""
        self._inlet.open()

    def close(self) -> None:
        """Hang up."""
        self._inlet.close()
        self._socket.close()

    def _take(self, message: list[bytes]) -> None:
        if (complete := self._joiner.take(message)) is not None:
            self._receive(complete)
