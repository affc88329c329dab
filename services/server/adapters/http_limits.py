"""Limits every HTTP connection: how long it may idle, how long a request may take, how large its head may be.

Those of the kubelet (config.md 5.2) but for the head, which has 10 s and 200 fields here. A connection of this module
stands between the transport and aiohttp's protocol: it passes on one request at a time, so that it can measure each
head, and holds back what a client sends beyond. Uses nothing of aiohttp but its public names; must not know what is
served.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import cast

from aiohttp import web

from services.server.core.listening.client_address import group_of
from services.server.core.listening.connections import ConnectionLimits, ConnectionTable, OpenConnection
from services.server.core.listening.log_interval import LogInterval

log = logging.getLogger(__name__)

LARGE_ANSWER_BYTES = 64 << 10  # a smaller answer fits into the buffers of the connection
MAX_IDLE_SECONDS = 90.0  # between two requests of one connection
# From the start of the connection, or from the first byte of a later request, until the head is complete.
MAX_HEAD_SECONDS = 10.0
MAX_REQUEST_SECONDS = 4 * 3600.0  # until a request is read and answered; upgraded connections last longer
MAX_HEAD_BYTES = (1 << 20) + 4096  # of a request's line and headers; 4 KiB are added, as in Go
MAX_HEADER_FIELDS = 200  # of one head
_FIELD_COST_BYTES = 300  # memory that a parsed field takes besides its text
MAX_AHEAD_BYTES = 16 << 10  # of later requests that are held, and at most one more read; the kernel keeps the rest
_BODY_BUFFER_BYTES = 4 << 10  # of a body that are read ahead; few handlers read one
_MAX_LINGER_SECONDS = 1.0  # to wait for the rest of a body that the handler did not read
_MAX_REFUSAL_SECONDS = 0.5  # for a refused client to read the reason while it may still be sending
_MAX_SHUTDOWN_SECONDS = 1.0  # that open requests get when the server ends
_MAX_CANCELLATION_SECONDS = 0.1  # that handlers get to end after they were cancelled
_RECEIVE_BUFFER_BYTES = 1 << 20  # that the kernel buffers of an authorized client; the kernel has a limit of its own
# A Linux socket option; 0 = the kernel may change the buffer's size again, as it does where no size was set.
_SO_BUF_LOCK = 72
_END = b"\r\n\r\n"  # the end of a head

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(OpenConnection, asyncio.Protocol):
    """One client's connection, from the moment it is accepted."""

    def __init__(self, server: "LimitedServer", address: str) -> None:
        super().__init__(group_of(address))
        self.http = server.http()  # the protocol of aiohttp that takes the connection's bytes
        self.starting: asyncio.Task[None] | None = None  # None once the server has the connection
        self._server, self._ended = server, False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._passing = False  # what is received belongs to a body or to a stream, and aiohttp bounds it
        self.last = False  # the connection closes after this request
        self._held = b""  # received, and not yet passed on
        self._head = self._lines = 0  # bytes and lines of the present head that were passed on
        self._tail = b""  # the last bytes of the head that were passed on

    @property
    def is_limited(self) -> bool:
        """Whether a time limit is set for the connection."""
        return self._timer is not None

    def end(self) -> None:
        """End the connection at once, also during its handshake."""
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
        self._limit(MAX_HEAD_SECONDS)
        if self._ended:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and cancel its handler."""
        self._ended = True
        self._limit(None)
        self._transport = None
        self._server.forget(self)
        self.http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Make the handler wait until the client has read more."""
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
        # A body, and what follows an upgrade, is passed on unmeasured, so that the head of a later request could have
        # any size: the connection ends after the answer to such a request.
        self.last = self.last or self._server.draining or request.can_read_body or "Upgrade" in request.headers
        self._limit(MAX_REQUEST_SECONDS)
        if request.can_read_body:
            self._pass_on()

    def finish(self) -> None:
        """Note that the handler has ended; its answer may still have to be written, for which the limit stays."""
        self._head = self._lines = 0
        self._server.table.finish(self)
        if self.last or self._server.draining or self._ended:
            self.http.close()  # closes after the answer is written
            return
        self._limit(MAX_REQUEST_SECONDS)
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
        self.last = True
        if not self.busy:
            self.http.force_close()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """Its end of TLS, None without TLS or before the end of the handshake."""
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    def count_as_authorized(self) -> bool:
        """Count this connection as authorized. Return False when too many of them are open."""
        known, authorized = self.authorized, self._server.count_as_authorized(self)
        if authorized and not known and self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            if sock is None:  # TLS has lost it, and tells this connection in the next turn of the loop
                return authorized
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            with suppress(OSError):  # Linux before 5.14 does not have the option
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
            self._limit(MAX_HEAD_SECONDS)
            self._tail = b""
        end = (self._tail + data).find(_END)
        if end >= 0:
            end += len(_END) - len(self._tail)
            data, self._held = data[:end], data[end:]
            self.busy = True
            self._limit(MAX_REQUEST_SECONDS)
        self._tail = (self._tail + data)[1 - len(_END) :]
        self._head += len(data)
        self._lines += data.count(b"\n")
        if self._head > MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large")
        elif self._lines > MAX_HEADER_FIELDS + 2:  # the two are the request line and the empty line at the end
            self._refuse(b"400 Bad Request")
        else:
            self.http.data_received(data)

    def _hold(self) -> None:
        held = 0 if self._passing else self._head + self._lines * _FIELD_COST_BYTES + len(self._held)
        self._server.end(self._server.table.hold(self, held), "bytes")

    def _refuse(self, status: bytes) -> None:
        self._ended, self._held = True, b""
        if self._transport is not None:
            head = b"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
            self._transport.write(b"HTTP/1.1 " + status + b"\r\n" + head + status)
            asyncio.get_running_loop().call_later(_MAX_REFUSAL_SECONDS, self._transport.close)

    def _limit(self, seconds: float | None) -> None:
        """End the connection after this many seconds, unless another limit is set before; None = no limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.end)


_CONNECTION = web.RequestKey("connection", Connection)


class LimitedServer:
    """Answers the requests of connections with `handler`; `table` counts the connections."""

    def __init__(self, handler: Handler, limits: ConnectionLimits, logger: logging.Logger) -> None:
        self._answer, self._log = handler, LogInterval()
        self.table = ConnectionTable[Connection](limits)
        self.connections: dict[asyncio.BaseProtocol, Connection] = {}  # the key is aiohttp's protocol
        self.draining = False
        self._all_ended = asyncio.Event()
        self.http = web.Server(
            self._handle,
            # A handler is cancelled when its client leaves: a follower of a silent log would otherwise stay for hours.
            handler_cancellation=True,
            keepalive_timeout=MAX_IDLE_SECONDS,
            # aiohttp may accept one line or field as large as the whole head, because this module measures their sum.
            max_line_size=2 * MAX_HEAD_BYTES,
            max_field_size=2 * MAX_HEAD_BYTES,
            max_headers=2 * MAX_HEADER_FIELDS,
            read_bufsize=_BODY_BUFFER_BYTES,
            lingering_time=_MAX_LINGER_SECONDS,
            auto_decompress=False,
            logger=logger,
            access_log=None,
        )

    def open(self, address: str) -> Connection:
        """Return the protocol of a new connection from this address; other connections may be ended to make room for
        it."""
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
        """End connections that the table has taken out, and log that at most once a minute."""
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
        """Count a connection as authorized. Return False when too many of them are open."""
        authorized, limits = self.table.count_as_authorized(connection), self.table.limits
        if not authorized and (count := self._log.count("refused", time.monotonic())):
            log.warning(
                "%d requests were answered with 503: there are %d authorized connections, or %d from one address",
                count, limits.authorized, limits.authorized_of_address,
            )  # fmt: skip
        return authorized

    async def drain(self, seconds: float = _MAX_SHUTDOWN_SECONDS) -> None:
        """Close idle connections, and wait at most this long for the requests in progress."""
        self.draining = True
        for connection in list(self.connections.values()):
            connection.close_if_idle()
        if self.connections:
            self._all_ended.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_ended.wait(), seconds)
        await self.http.shutdown(_MAX_CANCELLATION_SECONDS)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request[_CONNECTION] = self.connections[request.protocol]
        connection.begin(request)
        try:
            response = await self._answer(request)
            if connection.last:
                response.force_close()
            body = response.body if isinstance(response, web.Response) else None
            if isinstance(body, bytes) and len(body) > LARGE_ANSWER_BYTES:
                # An answer that the client does not read stays in memory.
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


def end_with_request(request: web.BaseRequest) -> None:
    """Let the connection of this request end with it."""
    if (connection := request.get(_CONNECTION)) is not None:
        connection.last = True


def count_as_authorized(request: web.BaseRequest) -> bool:
    """Count the connection of this authorized request as authorized. Return False when too many of them are open."""
    connection = request.get(_CONNECTION)
    return connection is None or connection.count_as_authorized()
