"""The streaming server: exec, attach and port-forward over SPDY/3.1, on loopback, for the agent's HTTP server.

A URL is for one connection. Docker's streams and the client's hold each other back: nothing is read that cannot be
written on.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from services.dockershim.adapters.spdy_session import Session, Stream
from services.dockershim.core.errors import CallError
from services.dockershim.core.stream_tokens import StreamTokens

log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_PATH = "/stream/"
MAX_HEAD_BYTES = 16 * 1024
MAX_HEAD_SECONDS = 10.0
MAX_HEADS = 100  # connections that have not named a URL yet; for a further one the oldest of them is closed
MAX_OPEN_SECONDS = 30.0  # for a client to open the streams of a command
_REMOTE_COMMAND = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
_PORT_FORWARD = ("portforward.k8s.io",)
_WITH_STATUS = "v4.channel.k8s.io"


class Attached(Struct, frozen=True):
    """Requests the streams of the first process of a container. `streams`: those of stdin, stdout and stderr that the
    client opens."""

    container_id: str
    streams: tuple[str, ...]
    tty: bool


class Command(Attached, frozen=True):
    """Requests the streams of a new command in a container."""

    words: tuple[str, ...] = ()


class Forwarded(Struct, frozen=True):
    """Requests connections to ports of a sandbox."""

    sandbox_id: str


Request = Attached | Forwarded
Serve = Callable[[Request, "Session"], Awaitable[dict[str, Any] | None]]


class StreamingServer:
    """Listens between `start` and `stop`. `serve` connects a session, and returns the Status of its end."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._tokens: StreamTokens[Request] = StreamTokens(lambda: secrets.token_urlsafe(16))
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()
        self._without_head: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self.serve: Serve | None = None

    async def start(self) -> None:
        """Listen on a free port. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, _HOST, 0, limit=MAX_HEAD_BYTES)

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def url_of(self, request: Request) -> str:
        """Return a URL for this request, good for one connection within a minute. Raises CallError."""
        assert self._server is not None
        token = self._tokens.add(request, self._monotonic())
        if token is None:
            raise CallError("ResourceExhausted", "too many streams were requested and not opened")
        return f"http://{_HOST}:{self._server.sockets[0].getsockname()[1]}{_PATH}{token}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions.add(task)
        try:
            await self._serve(await self._read_head(reader, writer), reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError) as error:
            log.debug("a stream ended: %s", error)
        finally:
            self._sessions.discard(task)
            writer.close()

    async def _read_head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if len(self._without_head) >= MAX_HEADS:
            oldest = next(iter(self._without_head))
            del self._without_head[oldest]
            oldest.close()  # which ends its read; asyncio of Python 3.11 logs a traceback for a cancelled task
        self._without_head[writer] = None
        try:
            async with asyncio.timeout(MAX_HEAD_SECONDS):
                return await reader.readuntil(b"\r\n\r\n")
        finally:
            self._without_head.pop(writer, None)

    async def _serve(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        path = [*first.split(" "), ""][1].partition("?")[0]
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        request = self._tokens.take(path.removeprefix(_PATH), self._monotonic()) if path.startswith(_PATH) else None
        if request is None:
            await _refuse(writer, "404 Not Found", "this URL was used, or is older than a minute")
            return
        if ("upgrade", "spdy/3.1") not in [(name, value.lower()) for name, value in headers]:
            await _refuse(writer, "400 Bad Request", "this runtime serves streams over SPDY/3.1 alone")
            return
        offered = [value for name, value in headers if name == "x-stream-protocol-version"]
        known = _PORT_FORWARD if isinstance(request, Forwarded) else _REMOTE_COMMAND
        protocol = next((candidate for candidate in known if not offered or candidate in offered), None)
        if protocol is None:
            accepted = "".join(f"X-Accepted-Stream-Protocol-Versions: {name}\r\n" for name in known)
            await _refuse(
                writer,
                "403 Forbidden",
                f"unable to upgrade: unable to negotiate protocol: client supports "
                f"[{' '.join(offered)}], server accepts [{' '.join(known)}]",
                accepted,
            )
            return
        writer.write(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            f"X-Stream-Protocol-Version: {protocol}\r\n\r\n".encode()
        )
        async with Session(reader, writer) as session:
            await self._run(request, session, protocol)

    async def _run(self, request: Request, session: Session, protocol: str) -> None:
        assert self.serve is not None
        try:
            status = await self.serve(request, session)
        except CallError as error:
            status = failure(str(error))
        error_stream = session.find("error")
        if status is None or error_stream is None:
            return
        if protocol == _WITH_STATUS:
            await error_stream.send(json.dumps(status).encode(), fin=True)
        elif status["status"] != "Success":
            await error_stream.send(status["message"].encode(), fin=True)
        else:
            await error_stream.send(b"", fin=True)
        await session.finish()


SUCCESS: dict[str, Any] = {"metadata": {}, "status": "Success"}


def exited(code: int) -> dict[str, Any]:
    """Return the Status of a command that ended with this exit code."""
    if not code:
        return SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure(message: str) -> dict[str, Any]:
    """Return the Status of a command that could not run."""
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}


async def wait_for_streams(session: Session, names: tuple[str, ...]) -> dict[str, Stream]:
    """Return the streams of these kinds once the client has opened them all. Raises TimeoutError."""
    async with asyncio.timeout(MAX_OPEN_SECONDS):
        return {name: await session.wait_for(name) for name in names}


async def _refuse(writer: asyncio.StreamWriter, status: str, text: str, headers: str = "") -> None:
    body = text.encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n{headers}"
        f"Connection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()
