"""In front of the old API server of the tests, what a current one does with WebSockets of kubectl: it hands those of
exec, attach and port-forward on to the kubelet as they are (server.md 12.3). Everything else goes to the API server.

Each connection has one request. kubectl connects without TLS and credentials; it acts as the administrator.
"""

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlencode, urlsplit

_MAX_HEAD_BYTES = 1 << 16
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/(exec|attach|portforward)")
_STREAMS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}


class WebSocketFront:
    """`async with WebSocketFront(api_server, kubelet, ...) as front:`. Both are ports of 127.0.0.1; `pair`: certificate
    and key that both accept; `container`: of a pod whose request names none."""

    def __init__(self, api_server: int, kubelet: int, authority: Path, pair: tuple[Path, Path], container: str) -> None:
        self._api_server, self._kubelet, self._container = api_server, kubelet, container
        self._to_api_server = ssl.create_default_context(cafile=str(authority))
        self._to_kubelet = ssl.create_default_context()
        self._to_kubelet.check_hostname = False
        self._to_kubelet.verify_mode = ssl.CERT_NONE  # it has a certificate of its own
        for context in (self._to_api_server, self._to_kubelet):
            context.load_cert_chain(*pair)
        self.upgrades: Counter[str] = Counter()  # sub-protocol that the kubelet chose -> how often
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()  # the event loop alone would not keep a waiting task alive

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def url(self) -> str:
        """Return the URL at which the front listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with AsyncExitStack() as closing:
            closing.callback(writer.close)
            await self._forward(reader, writer, closing)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, closing: AsyncExitStack
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            first, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, target, protocol = first.split(" ")
            target = target.replace("?&", "?")
            pod = _POD.fullmatch(urlsplit(target).path)
            is_upgrade = any(line.lower() == "upgrade: websocket" for line in headers)
            to_kubelet = pod is not None and is_upgrade
            if pod is not None and is_upgrade:
                target = self._path_of_kubelet(pod[1], pod[2], pod[3], urlsplit(target).query)
            if not is_upgrade:
                kept = (line for line in headers if not line.lower().startswith("connection:"))
                headers = ["Connection: close", *kept]
            port, context = (self._kubelet, self._to_kubelet) if to_kubelet else (self._api_server, self._to_api_server)
            their_reader, their_writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, limit=_MAX_HEAD_BYTES
            )
            closing.callback(their_writer.close)
            their_writer.write("\r\n".join([f"{method} {target} {protocol}", *headers]).encode())
            answer = await their_reader.readuntil(b"\r\n\r\n")
            if to_kubelet and answer.startswith(b"HTTP/1.1 101"):
                [chosen] = re.findall(rb"(?im)^sec-websocket-protocol: (\S+)", answer)
                self.upgrades[chosen.decode()] += 1
            writer.write(answer)
            await _wait_for_first(_copy(reader, their_writer), _copy(their_reader, writer))

    def _path_of_kubelet(self, namespace: str, pod: str, subresource: str, query: str) -> str:
        """Return the path and query of the kubelet for those of the API server."""
        if subresource == "portforward":
            return f"/portForward/{namespace}/{pod}?{query}"
        given = parse_qs(query)
        container = given.get("container", [self._container])[0]
        sent = [(theirs, "1") for ours, theirs in _STREAMS.items() if given.get(ours) == ["true"]]
        sent += [("command", word) for word in given.get("command", ())]
        return f"/{subresource}/{namespace}/{pod}/{container}?{urlencode(sent)}"


async def _wait_for_first(*work: Coroutine[None, None, None]) -> None:
    """Return when one of them has ended, with the others cancelled."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the source ends, or the target does."""
    with suppress(OSError):
        while block := await source.read(1 << 16):
            target.write(block)
            await target.drain()
