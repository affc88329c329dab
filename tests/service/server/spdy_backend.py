"""A streaming server as a runtime has one, on loopback: speaks SPDY, echoes stdin, and does what a test requests."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.spdy.frames import (
    Data,
    Frame,
    FrameDecoder,
    FrameEncoder,
    Ping,
    RstStream,
    SynReply,
    SynStream,
)

EXITED_7 = {
    "metadata": {},
    "status": "Failure",
    "message": "command terminated with non-zero exit code: exit status 7",
    "reason": "NonZeroExitCode",
    "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
}


class Backend:
    """`heads` are the requests as they came. Set `refusal` to answer with those bytes, `status` for how a command ends,
    `flood` to write that many bytes to stdout at once, `hang_up` to close the connection when stdin ends."""

    def __init__(self) -> None:
        self.port = 0
        self.heads: list[str] = []
        self.refusal = b""
        self.protocol = "v4.channel.k8s.io"
        self.upgrade = "SPDY/3.1"
        self.status: object = EXITED_7
        self.flood = 0
        self.hang_up = False
        self.flooded = 0
        self.stalled = asyncio.Event()
        self.pings = 0
        self.resizes: list[bytes] = []
        self.closed = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._writers.append(writer)
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            if self.refusal:
                writer.write(self.refusal)
                await writer.drain()
                return
            writer.write(
                f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {self.upgrade}\r\n"
                f"X-Stream-Protocol-Version: {self.protocol}\r\n\r\n".encode()
            )
            if self.upgrade != "SPDY/3.1":
                while data := await reader.read(65536):
                    writer.write(data)
                return
            await self._spdy(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed.set()
            writer.close()

    async def _spdy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        encoder, decoder = FrameEncoder(), FrameDecoder()
        kinds: dict[int, str] = {}
        ids: dict[str, int] = {}

        def send(frame: Frame) -> None:
            writer.write(encoder.encode(frame))

        while data := await reader.read(65536):
            for frame in decoder.feed(data):
                match frame:
                    case SynStream():
                        kind = dict(frame.headers)["streamtype"]
                        kinds[frame.stream], ids[kind] = kind, frame.stream
                        send(SynReply(frame.stream))
                        if kind == "stdout" and self.flood:
                            await self._flood(writer, send, frame.stream)
                    case Ping():
                        self.pings += 1
                        send(frame)
                    case Data() if kinds.get(frame.stream) == "resize":
                        self.resizes.append(frame.payload)
                    case Data() if kinds.get(frame.stream) in ("stdin", "data"):
                        output = ids.get("stdout", frame.stream)
                        if frame.payload:
                            send(Data(output, frame.payload))
                        if frame.fin and self.hang_up:
                            return
                        if frame.fin:
                            if "stderr" in ids:
                                send(Data(ids["stderr"], b"bye", fin=True))
                            send(Data(output, b"", fin=True))
                            send(Data(ids["error"], json.dumps(self.status).encode(), fin=True))
                            send(RstStream(frame.stream, 5))
            await writer.drain()

    async def _flood(self, writer: asyncio.StreamWriter, send: object, stream: int) -> None:
        assert callable(send)
        while self.flooded < self.flood:
            send(Data(stream, b"x" * 65536))
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                self.stalled.set()
                await writer.drain()
            self.flooded += 65536
        send(Data(stream, b"", fin=True))

    def hang_up_now(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def streaming_backend() -> AsyncIterator[Backend]:
    """A backend that listens until the block ends."""
    backend = Backend()
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0)
    backend.port = server.sockets[0].getsockname()[1]
    try:
        yield backend
    finally:
        server.close()
        backend.hang_up_now()
        await server.wait_closed()
