"""Accepts connections of one listener and begins TLS on them, so that many at once hold up nothing else.

A TLS connection costs nothing but its socket until the client has sent something. Then handshakes begin a few at each
turn of the event loop, the addresses taking turns and the newest of each first: a client that asks at once is served
at once, whatever waits. asyncio's own server would begin them all, and counts none.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections import OrderedDict

from services.server.adapters.connections import Connections
from services.server.adapters.http_limits import LimitedServer
from services.server.core.connections import group_of
from services.server.core.log_interval import LogInterval

log = logging.getLogger(__name__)

HANDSHAKE = 10.0  # seconds for the client's first byte, and again for the handshake
BACKLOG = 4096  # connections the kernel holds until they are accepted; it has a limit of its own
# Bytes that the kernel takes from a client before it is read. Reads are as large, and uvloop and OpenSSL each keep a
# buffer of the largest read of a connection: without a limit a quarter of a MiB.
_RECEIVED = 16 << 10
_ACCEPTED = 64  # at each turn of the event loop
_BEGUN = 4  # handshakes at each turn; one takes a millisecond
_CLOSING = 1.0  # seconds for a client to take note of the end of a TLS connection
_SHORTAGE = 1.0  # seconds until the next try when there are no descriptors or there is no memory


class _Accepted:
    """A connection that is not yet the server's."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.socket, self.address, self.number = sock, address, 0
        self.deadline: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None


class Acceptor:
    """From `start` to `stop`. `tls` None = plain HTTP."""

    def __init__(
        self, listening: socket.socket, server: LimitedServer, connections: Connections, tls: ssl.SSLContext | None
    ) -> None:
        self._listening, self._server, self._connections, self._tls = listening, server, connections, tls
        self._loop = asyncio.get_running_loop()
        self._waiting: set[_Accepted] = set()  # for the client's first byte
        self._ready: OrderedDict[str, dict[_Accepted, None]] = OrderedDict()  # by address, the newest last
        self._due: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._log = LogInterval()

    @property
    def pending(self) -> int:
        """How many wait for their handshake to begin, the client having begun."""
        return sum(len(ready) for ready in self._ready.values())

    def start(self) -> None:
        """Begin to accept."""
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    async def stop(self) -> None:
        """Stop listening, and end what the server does not have yet; nothing happens the second time."""
        if self._listening.fileno() < 0:
            return
        self._loop.remove_reader(self._listening.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._listening.close()
        if self._due is not None:
            self._due.cancel()
        for accepted in list(self._waiting):
            self._drop(accepted)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._rest(error)
                return
            self._take(sock, str(address[0]) if address else "")  # a Unix socket has none

    def _rest(self, error: OSError) -> None:
        if self._log.count("shortage", time.monotonic()):
            log.error("cannot accept connections: %s; trying again each second", error.strerror)
        self._loop.remove_reader(self._listening.fileno())
        self._pause = self._loop.call_later(_SHORTAGE, self.start)

    def _take(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED)
        accepted = _Accepted(sock, group_of(address))
        accepted.number = self._connections.open(accepted.address, lambda: self._drop(accepted))
        if self._tls is None:
            self._begin(accepted)
            return
        self._waiting.add(accepted)
        accepted.deadline = self._loop.call_later(HANDSHAKE, self._drop, accepted)
        self._loop.add_reader(sock.fileno(), self._came, accepted)

    def _came(self, accepted: _Accepted) -> None:
        self._loop.remove_reader(accepted.socket.fileno())
        self._ready.setdefault(accepted.address, {})[accepted] = None
        self._begin_soon()

    def _begin_soon(self) -> None:
        if self._due is None and self._ready:
            self._due = self._loop.call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._due = None
        for _ in range(_BEGUN):
            if not self._ready:
                return
            address, ready = next(iter(self._ready.items()))
            self._ready.move_to_end(address)
            self._begin(next(reversed(ready)))
        self._begin_soon()

    def _begin(self, accepted: _Accepted) -> None:
        self._forget(accepted)
        accepted.task = self._loop.create_task(self._hand_over(accepted), name="accepting")
        self._tasks.add(accepted.task)
        accepted.task.add_done_callback(self._tasks.discard)

    async def _hand_over(self, accepted: _Accepted) -> None:
        """Make it the server's; returns once it is, after the handshake, or has failed to be."""
        handler = self._server.protocol_for(accepted.number)
        limits = {} if self._tls is None else {"ssl_handshake_timeout": HANDSHAKE, "ssl_shutdown_timeout": _CLOSING}
        try:
            await self._loop.connect_accepted_socket(lambda: handler, accepted.socket, ssl=self._tls, **limits)
        except BaseException as error:
            self._connections.close(accepted.number)
            accepted.socket.close()
            if not isinstance(error, OSError):  # ssl.SSLError, a client that left, a deadline
                raise
            log.debug("no connection with %s: %s", accepted.address, error)

    def _drop(self, accepted: _Accepted) -> None:
        """End it now, wherever it is on its way."""
        self._connections.close(accepted.number)
        if accepted.task is not None:
            accepted.task.cancel()
        elif accepted in self._waiting:
            self._forget(accepted)
            self._loop.remove_reader(accepted.socket.fileno())
            accepted.socket.close()

    def _forget(self, accepted: _Accepted) -> None:
        """It waits no more."""
        self._waiting.discard(accepted)
        if accepted.deadline is not None:
            accepted.deadline.cancel()
        ready = self._ready.get(accepted.address, {})
        ready.pop(accepted, None)
        if not ready:
            self._ready.pop(accepted.address, None)
