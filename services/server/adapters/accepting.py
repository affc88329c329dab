"""Accepts the connections of one listener: counts each one from the moment it is accepted, and limits the time of its
TLS handshake.

Of many handshakes a few begin at each turn of the event loop, the newest first: a client that asks at once is served at
once, whatever waits.
"""

import asyncio
import logging
import socket
import ssl
import time
from contextvars import ContextVar
from functools import partial
from itertools import islice

from services.server.adapters.http_limits import Connection, LimitedServer
from services.server.core.listening.log_interval import LogInterval

log = logging.getLogger(__name__)

CLIENT_ADDRESS: ContextVar[str] = ContextVar("client address", default="")  # as the callbacks of a handshake see it
MAX_HANDSHAKE_SECONDS = 10.0  # for a TLS handshake
MAX_BACKLOG_CONNECTIONS = 4096  # connections the kernel holds until they are accepted; it has a limit of its own
_MAX_ACCEPTS_PER_TURN = 64  # connections accepted in one turn of the event loop
_MAX_HANDSHAKES_PER_TURN = 4  # begun in one turn of the event loop; one takes a millisecond
_MAX_CLOSE_SECONDS = 1.0  # for a client to answer the end of a TLS connection
_SHORTAGE_PAUSE_SECONDS = 1.0  # until the next try when descriptors or memory run out


class Acceptor:
    """Accepts connections from its construction until `stop`. `tls`: None = plain HTTP."""

    def __init__(self, listening: socket.socket, server: LimitedServer, tls: ssl.SSLContext | None) -> None:
        listening.setblocking(False)
        self._listening, self._server, self._tls = listening, server, tls
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[None]] = set()
        self._turns: dict[asyncio.Future[None], None] = {}  # one for each handshake that has not begun, the newest last
        self._due: asyncio.Handle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._log = LogInterval()
        self._resume()

    async def stop(self) -> None:
        """Stop listening, and end the connections that the server has not taken over yet. A second call does
        nothing."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._listening.close()
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)

    def _resume(self) -> None:
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_MAX_ACCEPTS_PER_TURN):
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if self._log.count("shortage", time.monotonic()):
                    log.error("cannot accept connections: %s; trying again each second", error.strerror)
                self._loop.remove_reader(self._listening.fileno())
                self._pause = self._loop.call_later(_SHORTAGE_PAUSE_SECONDS, self._resume)
                return
            sock.setblocking(False)
            client = str(address[0]) if address else ""  # the address of a Unix socket is empty
            connection = self._server.open(client)
            connection.starting = self._loop.create_task(self._start(sock, connection, client), name="handshake")
            self._starting.add(connection.starting)
            connection.starting.add_done_callback(partial(self._started, sock, connection))

    def _begin_some(self) -> None:
        for turn in list(islice(reversed(self._turns), _MAX_HANDSHAKES_PER_TURN)):
            del self._turns[turn]
            if not turn.done():  # else the handshake was cancelled while it waited
                turn.set_result(None)
        self._due = self._loop.call_soon(self._begin_some) if self._turns else None

    async def _start(self, sock: socket.socket, connection: Connection, client: str) -> None:
        CLIENT_ADDRESS.set(client)  # of this task alone
        if self._tls is not None:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._turns[turn] = None
            self._due = self._due or self._loop.call_soon(self._begin_some)
            try:
                await turn
            finally:
                self._turns.pop(turn, None)
        limits = (
            {}
            if self._tls is None
            else {"ssl_handshake_timeout": MAX_HANDSHAKE_SECONDS, "ssl_shutdown_timeout": _MAX_CLOSE_SECONDS}
        )
        await self._loop.connect_accepted_socket(lambda: connection, sock, ssl=self._tls, **limits)

    def _started(self, sock: socket.socket, connection: Connection, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        connection.starting = None
        if task.cancelled() or (error := task.exception()) is not None:
            self._server.forget(connection)
            sock.close()
            if not task.cancelled():
                # An OSError is the client's fault, anything else is ours.
                level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
                log.log(level, "no connection with %s: %s", connection.address, error)
