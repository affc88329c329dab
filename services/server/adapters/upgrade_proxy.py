"""Proxies a stream unchanged: the client's request goes to the runtime, then bytes are copied both ways. Which streams
are bridged so is decided in `controllers/stream_endpoints.py`.

Does not interpret the bytes. While one side does not take data, the other side is not read."""

import asyncio

from aiohttp import web

from services.server.adapters.hijack import Client, Hijacked
from services.server.adapters.plain_answer import plain
from services.server.adapters.streaming_server import CHUNK_BYTES, Backend, connect
from services.server.core.listening.client_address import shown_address
from services.server.core.streams.upgrade import UpgradeError, parse_streaming_url, proxied_request

_MAX_DRAIN_SECONDS = 5.0  # to pass on what a client sent before it left
_NOT_RELAYED = {"connection", "content-length", "transfer-encoding", "keep-alive"}


async def proxy(request: web.BaseRequest, url: str) -> web.StreamResponse:
    """Answer an upgrade request with the runtime's stream behind `url`."""
    try:
        server = parse_streaming_url(url)
        head = proxied_request(request.method, server, request.raw_headers, shown_address(request.remote))
        backend = await connect(server, head)
        if not backend.upgraded:
            return await relay_refusal(backend)
    except UpgradeError as error:
        return responder_error(str(error))
    try:
        client = Client(request)
        try:
            client.writer.write(backend.raw_head)
            await _join(client, backend)
        finally:
            client.release()
    finally:
        backend.abort()
    return Hijacked()


async def relay_refusal(backend: Backend) -> web.Response:
    """Return the runtime's answer that is no upgrade, for the client; the connection is closed."""
    try:
        if backend.head.status < 400:
            return responder_error(f"invalid upgrade response: status code {backend.head.status}")
        response = web.Response(status=backend.head.status, body=await backend.refusal())
        for name, value in backend.head.headers:
            if name.lower() not in _NOT_RELAYED:
                response.headers.add(name, value)
        response.force_close()
        return response
    finally:
        backend.abort()


def responder_error(text: str, status: int = 500) -> web.Response:
    """Return an error of the upgrade itself, in the form of Go's http.Error."""
    response = plain(status, text + "\n")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.force_close()
    return response


async def _join(client: Client, backend: Backend) -> None:
    up = asyncio.create_task(_copy(client.reader, backend.writer), name="to-runtime")
    down = asyncio.create_task(_copy(backend.reader, client.writer), name="to-client")
    try:
        await asyncio.wait({up, down, client.lost}, return_when=asyncio.FIRST_COMPLETED)
        if not (down.done() or client.lost.done()):
            await asyncio.wait({down, client.lost}, return_when=asyncio.FIRST_COMPLETED)
        if not down.done() or client.writer.is_closing():
            await asyncio.wait({up}, timeout=_MAX_DRAIN_SECONDS)
    finally:
        up.cancel()
        down.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and pass the end on where the connection can be closed in one direction only.

    A side that has ended TLS takes nothing more: the event loop drops what is written, and logs a line for each write.
    """
    try:
        while (data := await reader.read(CHUNK_BYTES)) and not writer.is_closing():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except (OSError, RuntimeError):
        return  # one side is gone, which ends both directions
