"""Takes what a ZeroMQ socket receives, on the event loop, message by message; the loop is woken once for all there is.

Futures for each message (`zmq.asyncio`) would cost three turns of the loop and ten times the processor time.
"""

import asyncio
from collections.abc import Callable

import zmq

from bus.context import Socket

BURST = 100  # messages handled before other tasks get a turn


class Inlet:
    """Hands every message of a socket to `take`, from `open` to `close`. An exception of `take` costs that message."""

    def __init__(self, socket: Socket, take: Callable[[list[bytes]], None]) -> None:
        self._socket, self._take = socket, take
        self._loop: asyncio.AbstractEventLoop | None = None  # None = not open
        self._descriptor = -1
        self._due: asyncio.Handle | None = None

    def open(self) -> None:
        """Begin, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._drain)
        self.look_again()  # the descriptor does not report what came before

    def look_again(self) -> None:
        """Call it after every send on the same socket: the descriptor becomes readable once for something to receive,
        and a send may have reset it."""
        if self._loop is not None and self._due is None:
            self._due = self._loop.call_soon(self._drain_again)

    def close(self) -> None:
        """Take nothing more; before the socket is closed."""
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _drain_again(self) -> None:
        self._due = None
        self._drain()

    def _drain(self) -> None:
        """Receive until the socket is empty: only then its descriptor becomes readable again."""
        for _ in range(BURST):
            if self._loop is None:
                return
            try:
                message = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                self._take(message)
            except BaseException:
                self.look_again()
                raise
        self.look_again()
