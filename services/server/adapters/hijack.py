"""Takes a client's connection out of aiohttp's hands: from the upgrade on it carries bytes that are no HTTP."""

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from services.server.adapters.http_limits import connection_of
from services.server.adapters.streaming_server import BUFFER_BYTES


class Hijacked(web.StreamResponse):
    """What a handler returns once the connection no longer belongs to aiohttp: aiohttp then sends nothing."""

    def __init__(self) -> None:
        super().__init__(status=101)
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send nothing."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Send nothing."""


class Client:
    """The client's side of a hijacked connection, as streams. `lost` is done once the connection is gone."""

    def __init__(self, request: web.BaseRequest) -> None:
        """Take over the connection of the request. Raises ConnectionResetError when the client has left."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._connection = connection_of(request)
        early = self._connection.hand_over()
        self.reader = asyncio.StreamReader(limit=BUFFER_BYTES, loop=loop)
        protocol = _ClientProtocol(self.reader, self.lost, loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_reading():
            transport.resume_reading()
        if early:
            self.reader.feed_data(early)
        self.writer = asyncio.StreamWriter(transport, protocol, self.reader, loop)

    def release(self) -> None:
        """Close the connection after what is written has been sent, and let the server forget it when it is gone."""
        self.writer.close()

        def forget(_: Any) -> None:
            self._connection.connection_lost(None)

        self._connection.http.force_close()
        self.lost.add_done_callback(forget)


class _ClientProtocol(asyncio.StreamReaderProtocol):
    def __init__(
        self, reader: asyncio.StreamReader, lost: asyncio.Future[None], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(reader, loop=loop)
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        """End the streams, and resolve `lost`."""
        super().connection_lost(exc)
        if not self._lost.done():
            self._lost.set_result(None)
