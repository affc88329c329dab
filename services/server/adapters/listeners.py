"""Opens and closes the HTTP listeners. Knows addresses and aiohttp; must not know what is served."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

_LOG = logging.getLogger(__name__)

_IDLE_TIMEOUT = 90.0  # seconds between requests of one connection
_HEADER_LIMIT = 1 << 20  # bytes
_SHUTDOWN = 1.0  # seconds that open requests get at the end

SERVER_NAME = "bulkhead"  # instead of the versions of Python and aiohttp

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Listener:
    """One open listener."""

    def __init__(self, runner: web.ServerRunner, server: web.Server, port: int, busy: set[web.RequestHandler]) -> None:
        self._runner, self._server, self._busy = runner, server, busy
        self.port = port

    def close_connections(self) -> None:
        """Close every connection: idle ones now, busy ones after their present answer."""
        for connection in self._server.connections:
            if connection in self._busy:
                connection.close()
            else:
                connection.force_close()

    async def close(self) -> None:
        """Stop listening and end what is open."""
        await self._runner.cleanup()


async def listen(address: str, port: int, handler: Handler, tls: ssl.SSLContext | None = None) -> Listener:
    """Open a listener; port 0 takes a free one. Raises OSError or ValueError when the address
    cannot be bound."""
    sock = _bind(address, port)
    busy: set[web.RequestHandler] = set()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        busy.add(request.protocol)
        try:
            response = await handler(request)
            if not response.prepared:
                response.headers.setdefault("Server", SERVER_NAME)
            return response
        finally:
            busy.discard(request.protocol)

    # A handler is cancelled when its client leaves: a follower of a silent log would otherwise stay for hours.
    server = web.Server(
        handle,
        handler_cancellation=True,
        logger=_http_log(),
        access_log=None,
        keepalive_timeout=_IDLE_TIMEOUT,
        max_line_size=_HEADER_LIMIT,
        max_field_size=_HEADER_LIMIT,
    )
    runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN)
    await runner.setup()
    try:
        await web.SockSite(runner, sock, ssl_context=tls).start()
    except BaseException:
        sock.close()
        await runner.cleanup()
        raise
    return Listener(runner, server, int(sock.getsockname()[1]), busy)


async def listen_until_open(address: str, port: int, handler: Handler, retry: float = 5.0) -> Listener:
    """As `listen`, but a failure is logged and tried again every `retry` seconds."""
    while True:
        try:
            return await listen(address, port, handler)
        except (OSError, ValueError) as error:
            _LOG.error("cannot listen on %s port %d: %s; trying again in %d s", address, port, why(error), retry)
            await asyncio.sleep(retry)


def why(error: OSError | ValueError) -> str:
    """The reason a listener could not be opened, without what the caller says anyway."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def _bind(address: str, port: int) -> socket.socket:
    if isinstance(ip_address(address), IPv6Address):
        # "::" takes IPv4 as well, as Go's listener does.
        return socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=address == "::")
    return socket.create_server((address, port))


def _http_log() -> logging.Logger:
    log = logging.getLogger("services.server.http")
    if not log.filters:
        log.addFilter(_one_line_for_bad_requests)
    return log


def _one_line_for_bad_requests(record: logging.LogRecord) -> bool:
    """What a client sent wrongly is one debug line, never a traceback; our own errors stay as they are."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError | ConnectionError | ssl.SSLError | ValueError):
        record.exc_info = None
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        record.msg, record.args = "bad request: %s", (" ".join(str(error).split())[:200],)
        return _debugging()
    return True


def _debugging() -> bool:
    return _LOG.isEnabledFor(logging.DEBUG)
