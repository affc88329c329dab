"""Between a shim and a real Docker: forwards the requests of Docker's API as bytes, and ends dockerd at a chosen one.

A request has a name such as `create sandbox` or `stop container`. Runs in the event loop of the test.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 64 * 1024
_REQUEST = re.compile(r"(\w+) (?:/v[\d.]+)?/(\S*) HTTP")
_OF_ONE = re.compile(r"containers/(\w{64}|k8s_\w+)(?:/(\w+))?$")
_VERBS = {"json": "inspect", None: "remove"}  # of paths of one container; the others are named as they are
MOMENTS = ("before", "during", "after")


class EngineProxy:
    """`async with EngineProxy(docker.socket, directory / "proxy.sock", docker.kill) as proxy:`.

    `requests`: the names of the requests so far, in order. A request that `kill_at` names is held before it is sent,
    or sent and not waited for, or answered to nobody, and `kill` is called; `killed` is set then.
    """

    def __init__(self, target: Path, socket: Path, kill: Callable[[], None]) -> None:
        self.target, self.socket = target, socket
        self.requests: list[str] = []
        self.killed = asyncio.Event()
        self._kill = kill
        self._armed: tuple[str, str] | None = None
        self._sandboxes: set[str] = set()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    def kill_at(self, request: str, moment: str) -> None:
        """End dockerd at the next request of this name: `before` it is sent, `during` its work or `after` that."""
        assert moment in MOMENTS
        self.killed.clear()
        self._armed = (request, moment)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self.socket)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(OSError, EOFError):
                await _Connection(self, reader, writer).serve()
        finally:
            self._connections.discard(task)
            writer.close()

    def name_of(self, head: str) -> str:
        """Note a request by its head, and return its name."""
        found = _REQUEST.match(head)
        assert found is not None, head
        method, (path, _, query) = found[1], found[2].partition("?")
        if path == "containers/create":
            name = "create sandbox" if "k8s_POD_" in query else "create container"
        elif one := _OF_ONE.match(path):
            kind = "sandbox" if one[1] in self._sandboxes or one[1].startswith("k8s_POD_") else "container"
            name = f"{_VERBS.get(one[2], one[2])} {kind}"
        elif path == "containers/json":
            name = "list of a sandbox" if "io.kubernetes.sandbox.id" in query else "list"
        else:
            name = re.sub(r"images/.+/json$", "inspect image", path) if method == "GET" else f"{method} {path}"
        self.requests.append(name)
        return name

    def learn(self, request: str, answer: bytes) -> None:
        """Note the id of a sandbox that was created."""
        if request == "create sandbox" and (found := re.search(rb'"Id":"(\w{64})"', answer)):
            self._sandboxes.add(found[1].decode())

    def is_time(self, request: str, moment: str) -> bool:
        """Return whether dockerd was ended now."""
        if self._armed != (request, moment):
            return False
        self._armed = None
        self._kill()
        self.killed.set()
        return True


class _Connection:
    """One connection of the shim: one request after another, each of which may become a stream."""

    def __init__(self, proxy: EngineProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._reader, self._writer = proxy, reader, writer
        self._request = ""

    async def serve(self) -> None:
        """Forward until either side ends. Raises OSError, EOFError."""
        answers, requests = await asyncio.open_unix_connection(str(self._proxy.target))
        down = asyncio.create_task(self._answers(answers))
        up = asyncio.create_task(self._requests(requests))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if up.done() and not up.exception():
                await down  # the input of a stream has ended
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            requests.close()

    async def _requests(self, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await self._reader.readuntil(b"\r\n\r\n")
            text = head.decode("latin-1")
            self._request = self._proxy.name_of(text)
            length = re.search(r"(?i)\r\ncontent-length: *(\d+)", text)
            body = await self._reader.readexactly(int(length[1])) if length else b""
            if self._proxy.is_time(self._request, "before"):
                raise ConnectionResetError
            writer.write(head + body)
            await writer.drain()
            if self._proxy.is_time(self._request, "during"):
                raise ConnectionResetError
            if re.search(r"(?i)\r\nupgrade:", text):
                break
        while data := await self._reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def _answers(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            self._proxy.learn(self._request, data)
            if self._proxy.is_time(self._request, "after"):
                raise ConnectionResetError
            self._writer.write(data)
            await self._writer.drain()
