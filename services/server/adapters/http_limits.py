"""The limits of every HTTP listener (config.md 5.2): how long a connection may idle, how long a request may take, how
large its head may be. Knows aiohttp's connections; must not know what is served.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

IDLE = 90.0  # seconds between requests of one connection
LONGEST = 4 * 3600.0  # seconds for the first request to come, and for each to be read and answered; upgrades last
HEAD = (1 << 20) + 4096  # bytes of a request's line and headers, 4 KiB on top as in Go; one read may go beyond
_HEADERS = 4096  # fields
_LAST_WORDS = 0.5  # seconds for a refused client to read why, while it may still be sending

_TOO_LARGE = b"431 Request Header Fields Too Large"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class LimitedServer(web.Server):
    """aiohttp's server with these limits."""

    def __init__(self, handler: Handler, **more: Any) -> None:
        self._answer = handler
        self._ends: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        # One line or field may be as large as the whole head: it is the whole that is measured.
        more |= {"max_line_size": 2 * HEAD, "max_field_size": 2 * HEAD, "max_headers": _HEADERS}
        super().__init__(self._handle, keepalive_timeout=IDLE, **more)

    def __call__(self) -> web.RequestHandler:
        """A new connection's protocol."""
        return _Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called by aiohttp."""
        super().connection_made(handler, transport)
        self._limit(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Called by aiohttp."""
        super().connection_lost(handler, exc)
        self._unlimit(handler)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = request.protocol
        self._limit(handler)
        try:
            return await self._answer(request)
        finally:
            self._unlimit(handler)

    def _limit(self, handler: web.RequestHandler) -> None:
        self._unlimit(handler)
        self._ends[handler] = self._loop.call_later(LONGEST, _end, handler)

    def _unlimit(self, handler: web.RequestHandler) -> None:
        end = self._ends.pop(handler, None)
        if end is not None:
            end.cancel()


def _end(handler: web.RequestHandler) -> None:
    transport = handler.transport
    # An upgraded connection has another protocol by now, and no limit.
    if isinstance(transport, asyncio.Transport) and transport.get_protocol() is handler:
        transport.abort()


class _Connection(web.RequestHandler):
    __slots__ = ("_head", "_refused")

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._head = 0  # bytes received of a head that is not yet whole
        self._refused = False

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        requests = self._request_count
        super().data_received(data)
        if self._request_count != requests or self._request_in_progress:
            self._head = 0
            return
        self._head += len(data)
        if self._head > HEAD:
            self._refuse()

    def _refuse(self) -> None:
        self._refused = True
        transport = self.transport
        if isinstance(transport, asyncio.Transport):
            head = (
                b"HTTP/1.1 " + _TOO_LARGE + b"\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
            )
            transport.write(head + _TOO_LARGE)
            self._loop.call_later(_LAST_WORDS, transport.close)
