"""A TCP proxy that passes only as many bytes of answers as a test allows: a slow registry that can stall.

async with Throttled(registry.address) as slow:
    image = slow.name("team/app:1")
    slow.allow(1 << 20)
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

_PIECE = 64 * 1024


class Throttled:
    """The proxy in front of `address` (host:port), at an address of its own."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._left: float = 0
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def name(self, path: str) -> str:
        """Return the image of this path, through the proxy."""
        return f"{self.address}/{path}"

    @property
    def is_used_up(self) -> bool:
        """Return whether all bytes that were allowed have been passed on."""
        return self._left <= 0

    def allow(self, number: float) -> None:
        """Pass so many more bytes of answers; `math.inf` = all."""
        self._left += number
        self._changed.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            their_reader, their_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        for source, sink, slow in ((reader, their_writer, False), (their_reader, writer, True)):
            task = asyncio.create_task(self._pump(source, sink, slow))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, slow: bool) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(_PIECE):
                    while data:
                        passed = await self._granted(len(data)) if slow else len(data)
                        sink.write(data[:passed])
                        await sink.drain()
                        data = data[passed:]
        finally:
            sink.close()

    async def _granted(self, wanted: int) -> int:
        while self._left <= 0:
            self._changed.clear()
            await self._changed.wait()
        granted = int(min(self._left, wanted))
        self._left -= granted
        return granted
