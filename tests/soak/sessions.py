"""Talks to pods through the API server as kubectl would, over WebSockets: exec, attach, logs, port-forward.

Each can be broken off in the middle: the connection is cut, no closing frame. Knows nothing of what becomes of it.
"""

import asyncio
import json
import ssl
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp

CHANNELS = "v4.channel.k8s.io"
STDOUT, ERROR = 1, 3  # of exec and attach
WITHIN = aiohttp.ClientTimeout(total=30, sock_connect=10)


class SessionFailedError(Exception):
    """The session did not come about or was cut by the other side; one line."""


class Sessions:
    """`async with Sessions(url, ca, pair) as talk:`; `pair`: certificate and key of an administrator."""

    def __init__(self, url: str, ca_file: Path, pair: tuple[Path, Path]) -> None:
        self._url = url
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._context.load_cert_chain(*map(str, pair))

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._context, force_close=True)
        self._client = aiohttp.ClientSession(connector=connector, timeout=WITHIN)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def exec(self, pod: str, container: str, *command: str) -> tuple[str, Any]:
        """What the command wrote and its status; SessionFailedError when it could not be had."""
        query = [*(("command", word) for word in command), ("container", container), ("stdout", "1"), ("stderr", "1")]
        written = b""
        try:
            async with asyncio.timeout(30), self._socket(pod, "exec", query) as socket:
                async for message in socket:
                    channel, content = message.data[0], message.data[1:]
                    if channel == ERROR:
                        return written.decode(), json.loads(content)
                    written += content if channel == STDOUT else b""
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            raise SessionFailedError(f"exec in {pod}: {error!r}") from error
        raise SessionFailedError(f"exec in {pod}: ended without a status")

    async def break_off(self, pod: str, container: str, verb: str, seconds: float, *command: str) -> None:
        """Begin an exec or attach and cut the connection after that time, with or without output."""
        query = [*(("command", word) for word in command), ("container", container)]
        query += [("stdin", "1"), ("stdout", "1"), ("stderr", "1")]
        try:
            async with asyncio.timeout(30), self._socket(pod, verb, query) as socket:
                await self._listen(socket, seconds)
                await socket.send_bytes(b"\0echo a line that is not awaited\n")
                if (connection := socket._response.connection) is not None and connection.transport is not None:
                    connection.transport.abort()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise SessionFailedError(f"{verb} in {pod}: {error!r}") from error

    async def logs(self, pod: str, container: str, *, follow: float = 0.0) -> int:
        """Bytes of log read. `follow`: listen so many seconds and cut the connection."""
        query: dict[str, str] = {"container": container, **({"follow": "true"} if follow else {})}
        size = 0
        try:
            async with self._client.get(self._path(pod, "log", list(query.items()))) as answer:
                if answer.status != 200:
                    raise SessionFailedError(f"logs of {pod}: {answer.status} {(await answer.text())[:200]}")
                try:
                    async with asyncio.timeout(follow or 30):
                        async for piece in answer.content.iter_any():
                            size += len(piece)
                except TimeoutError:
                    if not follow:
                        raise SessionFailedError(f"logs of {pod}: no end within 30 s") from None
                answer.close()
        except (aiohttp.ClientError, OSError) as error:
            raise SessionFailedError(f"logs of {pod}: {error!r}") from error
        return size

    async def forward(self, pod: str, port: int) -> bytes:
        """What a web server at this port of the pod answers."""
        answer = b""
        try:
            async with asyncio.timeout(30), self._socket(pod, "portforward", [("ports", str(port))]) as socket:
                await socket.send_bytes(b"\0GET /index.html HTTP/1.0\r\n\r\n")
                seen: dict[int, int] = {}
                async for message in socket:
                    channel, content = message.data[0], message.data[1:]
                    seen[channel] = seen.get(channel, 0) + 1
                    if channel == 0 and seen[channel] > 1:  # the first frame of each channel is the port
                        answer += content
                        if b"fine" in answer:
                            break
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise SessionFailedError(f"port-forward to {pod}: {error!r}") from error
        return answer

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                async for _ in socket:
                    pass
        except TimeoutError:
            pass

    def _socket(self, pod: str, verb: str, query: list[tuple[str, str]]) -> Any:
        url = self._path(pod, verb, query)
        return self._client.ws_connect(url, protocols=(CHANNELS,), max_msg_size=0, timeout=_CLOSING)

    def _path(self, pod: str, verb: str, query: list[tuple[str, str]]) -> str:
        return f"{self._url}/api/v1/namespaces/default/pods/{pod}/{verb}?{urlencode(query)}"


_CLOSING = aiohttp.ClientWSTimeout(ws_close=2.0)
