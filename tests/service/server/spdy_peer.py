"""A SPDY client as kubectl's old one: for tests in the place of an API server."""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable
from typing import Self

from shared.spdy.frames import (
    Data,
    FrameDecoder,
    FrameEncoder,
    Ping,
    RstStream,
    SynReply,
    SynStream,
)
from tests.support.waits.deadline import WAIT_SECONDS


class Refused(Exception):  # noqa: N818
    """The answer was no upgrade."""

    def __init__(self, status: int, head: str, body: bytes) -> None:
        super().__init__(f"{status} {body!r}")
        self.status, self.head, self.body = status, head, body


class SpdyPeer:
    """One upgraded connection. Everything received is kept, by stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._encoder, self._decoder = FrameEncoder(), FrameDecoder()
        self._next, self._changed = 1, asyncio.Condition()
        self.protocol = ""
        self.accepted: set[int] = set()
        self.ended: set[int] = set()
        self.received: dict[int, bytearray] = defaultdict(bytearray)
        self.closed = False
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls, port: int, target: str, protocol: str, *, tls: ssl.SSLContext | None = None, headers: str = ""
    ) -> Self:
        """POST `target` on loopback as an upgrade; `headers` are lines with their CRLF. Raises Refused."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1 << 20)
        writer.write(
            f"POST {target} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            f"X-Stream-Protocol-Version: {protocol}\r\n{headers}Content-Length: 0\r\n\r\n".encode()
        )
        async with asyncio.timeout(WAIT_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            status = int(head.split(" ")[1])
            if status != 101:
                body = await reader.read()
                writer.close()
                raise Refused(status, head, body)
        peer = cls(reader, writer)
        peer.protocol = next(
            line.split(":")[1].strip() for line in head.splitlines() if line.lower().startswith("x-stream-protocol")
        )
        peer._task = asyncio.create_task(peer._read())
        return peer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def open(self, *headers: tuple[str, str]) -> int:
        """Open a stream and wait until it is accepted."""
        stream, self._next = self._next, self._next + 2
        self._writer.write(self._encoder.encode(SynStream(stream, headers)))
        await self.until(lambda: stream in self.accepted)
        return stream

    async def send(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        """Send data of a stream."""
        self._writer.write(self._encoder.encode(Data(stream, data, fin)))
        await self._writer.drain()

    async def ping(self) -> None:
        """Send a ping."""
        self._writer.write(self._encoder.encode(Ping(1)))
        await self._writer.drain()

    async def finished(self, stream: int, seconds: float = WAIT_SECONDS) -> bytes:
        """Everything of a stream, once it has ended."""
        await self.until(lambda: stream in self.ended or self.closed, seconds)
        return bytes(self.received[stream])

    async def until(self, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        """Wait for it to hold; looked at whenever something was received."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(1 << 20):
                for frame in self._decoder.feed(data):
                    match frame:
                        case SynReply():
                            self.accepted.add(frame.stream)
                        case Data():
                            self.received[frame.stream] += frame.payload
                            if frame.fin:
                                self.ended.add(frame.stream)
                        case RstStream():
                            self.ended.add(frame.stream)
                await self._acknowledge()
        except OSError:
            pass
        self.closed = True
        await self._acknowledge()

    async def _acknowledge(self) -> None:
        async with self._changed:
            self._changed.notify_all()
