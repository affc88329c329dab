"""The limits of every HTTP connection: how long it may idle, how long a request may take, how large its head may be.

Those of the kubelet (config.md 5.2) but for the head, which has 10 s and 200 fields here. How many connections there
may be is `core.connections`'. Knows aiohttp's connections; must not know what is served.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice
from typing import Any

from aiohttp import web
from aiohttp.http_parser import HttpRequestParser

from services.server.adapters.connections import Connections

LARGE_ANSWER = 64 << 10  # bytes; what is smaller fits into the buffers of the connection
IDLE = 90.0  # seconds between requests of one connection
HEAD_SECONDS = 10.0  # from the connection's begin, or from a later request's first byte, until the head is complete
LONGEST = 4 * 3600.0  # seconds for a request to be read and answered; upgrades last
HEAD = (1 << 20) + 4096  # bytes of a request's line and headers, 4 KiB on top as in Go; one read may go beyond
FIELDS = 200  # header fields
_FIELD_COST = 300  # bytes that a parsed field takes beside its text
_RECEIVED = 1 << 20  # bytes of an authorized client that the kernel buffers; the kernel has a limit of its own
_SO_BUF_LOCK = 72  # of Linux; 0 = the kernel may change the size again, as it does where no size was set
_AHEAD = 2  # requests parsed before they are begun
_BODY = 4 << 10  # bytes of a body read ahead; no handler reads one
_LINGER = 1.0  # seconds for the rest of a body that was not read
_REFUSAL_SECONDS = 0.5  # for a refused client to read the reason, while it may still be sending

_TOO_LARGE = b"431 Request Header Fields Too Large"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class LimitedServer(web.Server):
    """aiohttp's server with these limits, for connections counted in `connections`."""

    def __init__(self, handler: Handler, connections: Connections, **more: Any) -> None:
        self._answer, self.connections_open = handler, connections
        self._ends: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        # One line or field may be as large as the head: it is the sum that is measured.
        more |= {"max_line_size": 2 * HEAD, "max_field_size": 2 * HEAD, "max_headers": FIELDS}
        more |= {"read_bufsize": _BODY, "lingering_time": _LINGER, "auto_decompress": False}
        super().__init__(self._handle, keepalive_timeout=IDLE, **more)

    @property
    def timers(self) -> int:
        """How many time limits are set."""
        return len(self._ends)

    def protocol_for(self, number: int) -> "Connection":
        """The protocol of the connection with this number."""
        return Connection(number, self, loop=asyncio.get_running_loop(), **self._kwargs)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called by aiohttp."""
        super().connection_made(handler, transport)
        assert isinstance(handler, Connection)
        self.connections_open.ends_by(handler.number, transport.abort)
        self.limit(handler, HEAD_SECONDS)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Called by aiohttp."""
        super().connection_lost(handler, exc)
        assert isinstance(handler, Connection)
        self.connections_open.close(handler.number)
        self.unlimit(handler)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = request.protocol
        assert isinstance(handler, Connection)
        self.limit(handler, LONGEST)
        self.connections_open.begin(handler.number)
        try:
            return await self._answer(request)
        finally:
            # The answer is still to be written; or the head of the next request was begun before this one was answered.
            self.limit(handler, HEAD_SECONDS if handler.head_begun else LONGEST)
            self.connections_open.finish(handler.number, len(request.raw_headers) * _FIELD_COST)

    def limit(self, handler: web.RequestHandler, seconds: float) -> None:
        """End the connection after so many seconds, unless another limit is set before."""
        self.unlimit(handler)
        if handler.transport is not None:  # else it is gone, or no longer aiohttp's
            self._ends[handler] = asyncio.get_running_loop().call_later(seconds, _end, handler)

    def unlimit(self, handler: web.RequestHandler) -> None:
        """Set no limit any more."""
        end = self._ends.pop(handler, None)
        if end is not None:
            end.cancel()


def count_as_authorized(request: web.BaseRequest) -> bool:
    """Count the connection of this authorized request as authorized. Return False where there are too many of them."""
    handler = request.protocol
    return not isinstance(handler, Connection) or handler.count_as_authorized()


def _end(handler: web.RequestHandler) -> None:
    transport = handler.transport
    # An upgraded connection has another protocol by now, and no limit.
    if isinstance(transport, asyncio.Transport) and transport.get_protocol() is handler:
        transport.abort()


class Connection(web.RequestHandler):
    """aiohttp's connection; measures heads, and what is received before a request is let through."""

    __slots__ = ("_authorized", "_head", "_refused", "_server", "number")

    def __init__(self, number: int, server: LimitedServer, **more: Any) -> None:
        super().__init__(server, **more)
        self.number, self._server = number, server
        self._head = 0  # bytes received of a head that is not yet complete
        self._refused = self._authorized = False
        # aiohttp reads 32 requests ahead, each of which may have 200 fields.
        self._max_msg_queue_size, self._msg_queue_resume_size = _AHEAD, _AHEAD - 1
        self._parser = HttpRequestParser(
            self,
            asyncio.get_running_loop(),
            _BODY,
            max_line_size=self.max_line_size,
            max_field_size=self.max_field_size,
            max_headers=self.max_headers,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=_AHEAD,
        )

    @property
    def head_begun(self) -> bool:
        """Whether a part of a head was received."""
        return bool(self._head)

    def count_as_authorized(self) -> bool:
        """Count this connection as authorized; False where there are too many."""
        if self._authorized:
            return True
        self._authorized = self._server.connections_open.count_as_authorized(self.number)
        if (
            self._authorized
            and self.transport is not None
            and (sock := self.transport.get_extra_info("socket")) is not None
        ):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED)
            with suppress(OSError):  # Linux before 5.14
                sock.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, 0)
        return self._authorized

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Called when an upgrade was let through: from here on the stream's own flow control bounds what is held, and
        the stream may last longer than a request (server.md 13.6)."""
        self._server.unlimit(self)
        self._server.connections_open.set_held(self.number, 0)
        super().set_parser(parser, data_received_cb)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Called by aiohttp: send an answer. A client that does not read it keeps its content in memory."""
        body = resp.body if isinstance(resp, web.Response) else None
        if self._authorized or not isinstance(body, bytes) or len(body) <= LARGE_ANSWER:
            return await super().finish_response(request, resp, start_time)
        with self._server.connections_open.sending(self.number):
            return await super().finish_response(request, resp, start_time)

    def data_received(self, data: bytes) -> None:
        """Called by the transport, and by aiohttp with nothing when there is room for another request."""
        counted = bool(data) and not self._authorized and self._payload_parser is None
        if self._refused or (counted and not self._hold(len(data))):
            return
        if data and self._payload_parser is not None and (self._close or self._force_close):
            self._read_on(data)
            return
        before = self._request_count
        super().data_received(data)
        if count := self._request_count - before:
            self._head = 0
            self._note_requests(count, len(data))
        elif data and not self._reads_body():
            if not self._head and not self._request_in_progress:
                self._server.limit(self, HEAD_SECONDS)
            self._head += len(data)
            if self._head > HEAD:
                self._refuse()

    def _read_on(self, data: bytes) -> None:
        """Hand data on to the stream that this connection became. aiohttp drops them once it waits for the stream's
        end, which may be hours away, at a hand-over."""
        assert self._payload_parser is not None
        if self._data_received_cb is not None:
            self._data_received_cb()
        self._payload_parser.feed_data(data)

    def _note_requests(self, count: int, received: int) -> None:
        connections = self._server.connections_open
        newest = islice(reversed(self._messages), count)
        fields = sum(len(getattr(message, "raw_headers", ())) for message, _ in newest)
        if self._request_in_progress or self._buffer_paused:
            connections.hold(self.number, fields * _FIELD_COST)
        else:  # all that came before was of requests that are answered
            connections.set_held(self.number, received + fields * _FIELD_COST)

    def _hold(self, size: int) -> bool:
        return self._server.connections_open.hold(self.number, size)

    def _reads_body(self) -> bool:
        request = self._current_request
        return self._upgraded or (request is not None and not request.content.is_eof())

    def _refuse(self) -> None:
        self._refused = True
        transport = self.transport
        if isinstance(transport, asyncio.Transport):
            head = (
                b"HTTP/1.1 " + _TOO_LARGE + b"\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
            )
            transport.write(head + _TOO_LARGE)
            asyncio.get_running_loop().call_later(_REFUSAL_SECONDS, transport.close)
