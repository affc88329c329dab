"""The limits of every HTTP connection: how long it may idle, how long a request may take, how large its head may be.

Those of the kubelet (config.md 5.2) but for the head, which has 10 s and 200 fields here. A connection of this module
stands between the transport and aiohttp's protocol: it passes on one request at a time, so that it can measure each
head, and holds back what a client sends beyond. Uses nothing of aiohttp but its public names; must not know what is
served.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import cast

from aiohttp import web

from services.server.core.client_address import group_of
from services.server.core.connections import ConnectionLimits, ConnectionTable, OpenConnection
from services.server.core.log_interval import LogInterval

log = logging.getLogger(__name__)

LARGE_ANSWER = 64 << 10  # bytes; what is smaller fits into the buffers of the connection
IDLE = 90.0  # seconds between requests of one connection
HEAD_SECONDS = 10.0  # from the connection's begin, or from a later request's first byte, until the head is complete
LONGEST = 4 * 3600.0  # seconds for a request to be read and answered; upgrades last
HEAD = (1 << 20) + 4096  # bytes of a request's line and headers, 4 KiB on top as in Go
FIELDS = 200  # header fields
_FIELD_COST = 300  # bytes that a parsed field takes beside its text
MAX_AHEAD_BYTES = 16 << 10  # of later requests that are held, and one read more; the kernel keeps the rest
_BODY = 4 << 10  # bytes of a body read ahead; few handlers read one
_LINGER = 1.0  # seconds for the rest of a body that was not read
_REFUSAL_SECONDS = 0.5  # for a refused client to read the reason, while it may still be sending
_SHUTDOWN = 1.0  # seconds that open requests get at the end
_CANCELLATION = 0.1  # seconds for handlers that are cancelled after that
_RECEIVED = 1 << 20  # bytes of an authorized client that the kernel buffers; the kernel has a limit of its own
_SO_BUF_LOCK = 72  # of Linux; 0 = the kernel may change the size again, as it does where no size was set
_END = b"\r\n\r\n"  # of a head

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(OpenConnection, asyncio.Protocol):
    """One client's connection, from its accept on."""

    def __init__(self, server: "LimitedServer", address: str) -> None:
        super().__init__(group_of(address))
        self.http = server.http()  # aiohttp's protocol
        self.starting: asyncio.Task[None] | None = None  # until the server has it
        self._server, self._ended = server, False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._passing = False  # what is received belongs to a body or to a stream, and aiohttp bounds it
        self.last = False  # the connection ends with this request
        self._held = b""  # received, and not yet passed on
        self._head = self._lines = 0  # bytes and lines that were passed on of a head
        self._tail = b""  # the last bytes of them

    @property
    def is_limited(self) -> bool:
        """Whether a time limit is set."""
        return self._timer is not None

    def end(self) -> None:
        """End the connection at once, wherever it is on its way."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()
        elif self.starting is not None:
            self.starting.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, after a TLS handshake where there is one."""
        transport = self._transport = cast(asyncio.Transport, transport)  # uvloop's of TLS has another base class
        self._server.connections[self.http] = self
        self.http.connection_made(transport)
        self._limit(HEAD_SECONDS)
        if self._ended:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it, and cancel its handler."""
        self._ended = True
        self._limit(None)
        self._transport = None
        self._server.forget(self)
        self.http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Let the handler wait until the client has read more."""
        self.http.pause_writing()

    def resume_writing(self) -> None:
        """Let the handler write again."""
        self.http.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Pass the data on if they are of the present request, else hold them until it is answered."""
        if self._passing:
            self.http.data_received(data)
            return
        self._held += data
        if not self.busy:
            self._read_head()
        elif len(self._held) > MAX_AHEAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._hold()

    def begin(self, request: web.BaseRequest) -> None:
        """Note that the handler of this request begins."""
        # Nothing of a later request comes to aiohttp behind a body, or behind an upgrade that may be refused.
        self.last = self._server.draining or request.can_read_body or "Upgrade" in request.headers
        self._limit(LONGEST)
        if request.can_read_body:
            self._pass_on()

    def finish(self) -> None:
        """Note that the handler has ended; its answer may still have to be written, for which the limit stays."""
        self._head = self._lines = 0
        self._server.table.finish(self)
        if self.last or self._server.draining or self._ended:
            self.http.close()  # once the answer is written
            return
        self._limit(LONGEST)
        self._read_head()
        self._hold()
        if len(self._held) <= MAX_AHEAD_BYTES:
            self._resume_reading()

    def begin_stream(self) -> None:
        """Pass all data on to the WebSocket that this connection has become, whose own flow control bounds them. It may
        last longer than a request (server.md 13.6)."""
        self._limit(None)
        self._pass_on()

    def hand_over(self) -> bytes:
        """Leave the connection to another protocol. Return what was received after the request."""
        self._limit(None)
        held, self._held = self._held, b""
        self._hold()
        return held

    def close_if_idle(self) -> None:
        """Close it unless a request is in progress; then it ends with that request."""
        if not self.busy:
            self.http.force_close()

    def count_as_authorized(self) -> bool:
        """Count this connection as authorized. Return False where there are too many of them."""
        known, authorized = self.authorized, self._server.count_as_authorized(self)
        if authorized and not known and self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED)
            with suppress(OSError):  # Linux before 5.14
                sock.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, 0)
        return authorized

    def _pass_on(self) -> None:
        self._passing = True
        held, self._held = self._held, b""
        self._hold()
        self._resume_reading()
        if held:
            self.http.data_received(held)

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()

    def _read_head(self) -> None:
        """Pass on what is held as far as it belongs to one head, and refuse one that is too large."""
        data = self._held if self._head else self._held.lstrip(b"\r\n")  # aiohttp ignores empty lines before a request
        self._held = b""
        if not data or self._ended:
            return
        if not self._head:
            self._limit(HEAD_SECONDS)
            self._tail = b""
        end = (self._tail + data).find(_END)
        if end >= 0:
            end += len(_END) - len(self._tail)
            data, self._held = data[:end], data[end:]
            self.busy = True
            self._limit(LONGEST)
        self._tail = (self._tail + data)[1 - len(_END) :]
        self._head += len(data)
        self._lines += data.count(b"\n")
        if self._head > HEAD:
            self._refuse(b"431 Request Header Fields Too Large")
        elif self._lines > FIELDS + 2:  # the request line, and the empty line at the end
            self._refuse(b"400 Bad Request")
        else:
            self.http.data_received(data)

    def _hold(self) -> None:
        held = 0 if self._passing else self._head + self._lines * _FIELD_COST + len(self._held)
        self._server.end(self._server.table.hold(self, held), "bytes")

    def _refuse(self, status: bytes) -> None:
        self._ended, self._held = True, b""
        if self._transport is not None:
            head = b"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
            self._transport.write(b"HTTP/1.1 " + status + b"\r\n" + head + status)
            asyncio.get_running_loop().call_later(_REFUSAL_SECONDS, self._transport.close)

    def _limit(self, seconds: float | None) -> None:
        """End the connection after so many seconds, unless another limit is set before; None = no limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.end)


_CONNECTION = web.RequestKey("connection", Connection)


class LimitedServer:
    """Answers the requests of connections, which are counted in `table`, with `handler`."""

    def __init__(self, handler: Handler, limits: ConnectionLimits, logger: logging.Logger) -> None:
        self._answer, self._log = handler, LogInterval()
        self.table = ConnectionTable[Connection](limits)
        self.connections: dict[asyncio.BaseProtocol, Connection] = {}  # by aiohttp's protocol
        self.draining = False
        self._all_ended = asyncio.Event()
        self.http = web.Server(
            self._handle,
            # A handler is cancelled when its client leaves: a follower of a silent log would otherwise stay for hours.
            handler_cancellation=True,
            keepalive_timeout=IDLE,
            # One line or field may be as large as the head: it is the sum that is measured.
            max_line_size=2 * HEAD,
            max_field_size=2 * HEAD,
            max_headers=2 * FIELDS,
            read_bufsize=_BODY,
            lingering_time=_LINGER,
            auto_decompress=False,
            logger=logger,
            access_log=None,
        )

    def open(self, address: str) -> Connection:
        """Return the protocol of a new connection from this address, for which others may end."""
        new = Connection(self, address)
        self.end(self.table.open(new), "connections")
        return new

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended."""
        self.table.close(connection)
        self.connections.pop(connection.http, None)
        if not self.connections:
            self._all_ended.set()

    def end(self, connections: Iterable[Connection], what: str) -> None:
        """End connections that the table has taken out, and log that now and then."""
        limits = self.table.limits
        for connection in connections:
            connection.end()
            if count := self._log.count(what, time.monotonic()):
                log.warning(
                    "%d connections without an authorized request were ended, the last for too many %s "
                    "(limits: %d, %d of one address, %d bytes, %d large answers)",
                    count, what, limits.unauthorized, limits.unauthorized_of_address,
                    limits.unauthorized_bytes, limits.large_answers,
                )  # fmt: skip

    def count_as_authorized(self, connection: Connection) -> bool:
        """Count a connection as authorized. Return False when there are too many of those."""
        authorized, limits = self.table.count_as_authorized(connection), self.table.limits
        if not authorized and (count := self._log.count("refused", time.monotonic())):
            log.warning(
                "%d requests were answered with 503: there are %d authorized connections, or %d from one address",
                count, limits.authorized, limits.authorized_of_address,
            )  # fmt: skip
        return authorized

    async def drain(self, seconds: float = _SHUTDOWN) -> None:
        """Close idle connections, and wait at most so long until the requests that are in progress have ended."""
        self.draining = True
        for connection in list(self.connections.values()):
            connection.close_if_idle()
        if self.connections:
            self._all_ended.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_ended.wait(), seconds)
        await self.http.shutdown(_CANCELLATION)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request[_CONNECTION] = self.connections[request.protocol]
        connection.begin(request)
        try:
            response = await self._answer(request)
            if connection.last:
                response.force_close()
            body = response.body if isinstance(response, web.Response) else None
            if isinstance(body, bytes) and len(body) > LARGE_ANSWER:
                # A client that does not read it keeps it in memory.
                self.end(self.table.send(connection), "large answers")
                await response.prepare(request)
                await response.write_eof()
            return response
        finally:
            self.table.sent(connection)
            connection.finish()


def connection_of(request: web.BaseRequest) -> Connection:
    """Return the connection that a request came over."""
    return request[_CONNECTION]


def count_as_authorized(request: web.BaseRequest) -> bool:
    """Count the connection of this authorized request as authorized. Return False where there are too many of them."""
    connection = request.get(_CONNECTION)
    return connection is None or connection.count_as_authorized()
