"""The SUB socket: one for all the services this one follows; a restarted owner is found by reconnecting."""

import asyncio
from collections.abc import Callable, Sequence

import zmq

from bus.context import Context, new_socket, reconnect_quickly

BURST = 100  # messages handled before other tasks get a turn


class Subscriber:
    """Hands every arriving frame to `receive`, which must not raise."""

    def __init__(self, context: Context, receive: Callable[[Sequence[bytes]], None]) -> None:
        self._socket = new_socket(context, zmq.SUB, linger=0)
        reconnect_quickly(self._socket)
        self._receive = receive

    def subscribe(self, topic: bytes) -> None:
        """Want this topic of every service connected to."""
        self._socket.setsockopt(zmq.SUBSCRIBE, topic)

    def connect(self, address: str) -> None:
        """Listen to the service at this address, now or whenever it appears."""
        self._socket.connect(address)

    async def run(self) -> None:
        """Receive until cancelled."""
        while True:
            for _ in range(BURST):
                self._receive(await self._socket.recv_multipart())
            await asyncio.sleep(0)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
