"""Serves the two WebSocket protocols that the runtime does not speak: v5 of exec and attach, and tunnelled SPDY.

Exec and attach are translated to SPDY streams; a tunnel's messages are unwrapped (server.md 12.3).
"""

import asyncio
import logging

from aiohttp import WSMsgType, web

from services.server.adapters.http_limits import connection_of
from services.server.adapters.remote_command import RemoteCommand
from services.server.adapters.streaming_server import CHUNK_BYTES, Backend, connect
from services.server.adapters.upgrade_proxy import relay_refusal, responder_error
from services.server.core.streams import completion
from services.server.core.streams.stream_parameters import TUNNEL_PREFIX, V5_PROTOCOL, RequestedStreams
from services.server.core.streams.upgrade import (
    REMOTE_COMMAND_PROTOCOLS,
    UpgradeError,
    is_spdy,
    parse_streaming_url,
    spdy_request,
)

log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 32 << 20
_PROTOCOL_HEADER = "X-Stream-Protocol-Version"
_MAX_CLOSE_SECONDS = 5.0  # for the client to answer our close
_STATUS_CHANNEL = b"\x03"


async def translate(request: web.BaseRequest, url: str, wanted: RequestedStreams) -> web.StreamResponse:
    """Serve an exec or attach over WebSocket v5."""
    socket = _socket(V5_PROTOCOL)
    refused = await _prepare(socket, request)
    if refused is not None:
        return refused
    # An empty message on the first channel that we write shows the client that the connection is established.
    await socket.send_bytes(b"\x01" if wanted.stdout else b"\x02" if wanted.stderr else _STATUS_CHANNEL)
    try:
        backend = await _spdy_connection(url, REMOTE_COMMAND_PROTOCOLS)
    except UpgradeError as error:
        status: bytes | None = completion.failure(str(error))
    else:
        try:
            protocol = backend.head.get(_PROTOCOL_HEADER)
            status = await RemoteCommand(socket, backend, wanted, protocol).run()
        finally:
            backend.abort()
    try:
        if status is not None:
            await socket.send_bytes(_STATUS_CHANNEL + status)
        await socket.close()
    except OSError as error:
        log.debug("the client left before the end of its stream: %s", error)
    return socket


async def tunnel(request: web.BaseRequest, url: str, protocols: tuple[str, ...]) -> web.StreamResponse:
    """Serve a port-forward whose SPDY connection comes inside a WebSocket; `protocols` are the SPDY ones offered."""
    try:
        server = parse_streaming_url(url)
        backend = await connect(server, spdy_request(server, protocols))
        if not backend.upgraded:
            return await relay_refusal(backend)
    except UpgradeError as error:
        return responder_error(str(error))
    try:
        if not is_spdy(backend.head):
            return responder_error("unable to upgrade: missing upgrade headers in response")
        socket = _socket(TUNNEL_PREFIX + backend.head.get(_PROTOCOL_HEADER))
        refused = await _prepare(socket, request)
        if refused is not None:
            return refused
        await _join(socket, backend)
        await socket.close()
        return socket
    finally:
        backend.abort()


def _socket(protocol: str) -> web.WebSocketResponse:
    return web.WebSocketResponse(
        protocols=(protocol,),
        max_msg_size=_MAX_MESSAGE_BYTES,
        compress=False,
        timeout=_MAX_CLOSE_SECONDS,
        autoclose=True,
    )


async def _prepare(socket: web.WebSocketResponse, request: web.BaseRequest) -> web.StreamResponse | None:
    try:
        await socket.prepare(request)
    except web.HTTPException as error:
        return responder_error(f"websocket: {error.text or error.reason}", error.status)
    connection_of(request).begin_stream()
    return None


async def _spdy_connection(url: str, protocols: tuple[str, ...]) -> Backend:
    server = parse_streaming_url(url)
    backend = await connect(server, spdy_request(server, protocols))
    if not backend.upgraded:
        body = (await backend.refusal()).decode("utf-8", "replace").strip()
        backend.abort()
        raise UpgradeError(f"unable to upgrade connection: {body or f'status {backend.head.status}'}")
    if not is_spdy(backend.head):
        backend.abort()
        raise UpgradeError("unable to upgrade connection: missing upgrade headers in response")
    return backend


async def _join(socket: web.WebSocketResponse, backend: Backend) -> None:
    up = asyncio.create_task(_unwrap(socket, backend.writer), name="to-runtime")
    down = asyncio.create_task(_wrap(backend.reader, socket), name="to-client")
    try:
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        up.cancel()
        down.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _unwrap(socket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    try:
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                writer.write(message.data)
                await writer.drain()
    except (OSError, RuntimeError):
        return


async def _wrap(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            await socket.send_bytes(data)
    except (OSError, RuntimeError):
        return
