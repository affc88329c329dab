"""Opens and closes the HTTP listeners. Knows addresses and aiohttp; must not know what is served."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from services.server.adapters.accepting import MAX_BACKLOG_CONNECTIONS, Acceptor
from services.server.adapters.http_limits import Connection, Handler, LimitedServer
from services.server.core.listening.connections import ConnectionLimits, ConnectionTable
from shared.host.listening_address import bind

log = logging.getLogger(__name__)

# The kernel gives these options of a listener to the connections that it accepts.
_OPTIONS = (
    # Limit the bytes that the kernel takes from a client before they are read. uvloop and OpenSSL each keep a buffer as
    # large as the largest read of a connection: without this limit, a quarter of a MiB.
    ((socket.SOL_SOCKET, socket.SO_RCVBUF), 16 << 10),
    # These are Go's values for every accepted connection: a peer that vanished is noticed after 15 s + 9 * 15 s.
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 15),  # seconds
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 15),  # seconds
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 9),
)

SERVER_NAME = "bulkhead"  # sent instead of the versions of Python and aiohttp


class Listener:
    """One open listener."""

    def __init__(self, acceptor: Acceptor, server: LimitedServer, port: int) -> None:
        self._acceptor, self._server, self.port = acceptor, server, port

    @property
    def connections(self) -> ConnectionTable[Connection]:
        """The open connections."""
        return self._server.table

    @property
    def timers(self) -> int:
        """The number of connections that have a time limit at this moment."""
        return sum(connection.is_limited for connection in self._server.connections.values())

    def end_tls(self, is_to_end: Callable[[ssl.SSLObject], bool]) -> None:
        """End the TLS connections for which this is true: idle ones at once, others with the request in progress."""
        for connection in list(self._server.connections.values()):
            if connection.tls is not None and is_to_end(connection.tls):
                connection.close_if_idle()

    async def close(self) -> None:
        """Stop listening and end what is open."""
        await self._acceptor.stop()
        await self._server.drain()

    async def stop_listening(self) -> None:
        """Release the address; what is open stays open."""
        await self._acceptor.stop()

    async def drain(self, seconds: float) -> None:
        """Close idle connections, and wait at most this long for the requests in progress."""
        await self._server.drain(seconds)


async def listen(
    address: str, port: int, handler: Handler, limits: ConnectionLimits, tls: ssl.SSLContext | None = None
) -> Listener:
    """Open a listener; port 0 takes a free one. Raises OSError or ValueError when the address
    cannot be bound."""
    return _serve(_listen(address, port), handler, limits, tls)


async def listen_at(path: Path, handler: Handler, limits: ConnectionLimits) -> Listener:
    """Open a listener on a Unix socket with access for this user alone; it replaces that of an earlier process. Raises
    OSError."""
    return _serve(_bind_at(path), handler, limits)


async def open_at_last(opening: Callable[[], Awaitable[Listener]], where: str, retry: float = 5.0) -> Listener:
    """Return what `opening` opens at `where`. A failure is logged and tried again every `retry` seconds."""
    while True:
        try:
            return await opening()
        except (OSError, ValueError) as error:
            log.error("cannot listen on %s: %s; trying again in %d s", where, error_text(error), retry)
            await asyncio.sleep(retry)


def error_text(error: OSError | ValueError) -> str:
    """Return the reason why a listener could not be opened, without the address, which the caller adds."""
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def _serve(
    sock: socket.socket, handler: Handler, limits: ConnectionLimits, tls: ssl.SSLContext | None = None
) -> Listener:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = await handler(request)
        if not response.prepared:
            response.headers.setdefault("Server", SERVER_NAME)
        return response

    server = LimitedServer(handle, limits, _http_log())
    acceptor = Acceptor(sock, server, tls)
    port = 0 if sock.family == socket.AF_UNIX else int(sock.getsockname()[1])
    return Listener(acceptor, server, port)


def _listen(address: str, port: int) -> socket.socket:
    sock = bind(address, port)
    try:
        for option, value in _OPTIONS:
            sock.setsockopt(*option, value)
        sock.listen(MAX_BACKLOG_CONNECTIONS)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_at(path: Path) -> socket.socket:
    """Bind a socket beside the path and rename it, so that a client finds either the old or the new socket."""
    for left in path.parent.glob(".[0-9]*.sock"):  # left by processes that were killed before they renamed it
        left.unlink(missing_ok=True)
    own = path.with_name(f".{os.getpid()}.sock")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(own))
        own.chmod(0o600)
        sock.listen(MAX_BACKLOG_CONNECTIONS)
        own.rename(path)
    except BaseException:
        sock.close()
        raise
    return sock


def _http_log() -> logging.Logger:
    of_requests = logging.getLogger(f"{__name__}.http")
    if not of_requests.filters:
        of_requests.addFilter(_one_line_for_bad_requests)
    return of_requests


def _one_line_for_bad_requests(record: logging.LogRecord) -> bool:
    """Log what a client sent wrongly as one debug line without a traceback; our own errors stay as they are."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError | ConnectionError | ssl.SSLError | ValueError):
        record.exc_info = None
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        record.msg, record.args = "bad request: %s", (" ".join(str(error).split())[:200],)
        return _debugging()
    return True


def _debugging() -> bool:
    return log.isEnabledFor(logging.DEBUG)
