"""A SPDY/3.1 client on a connection to the runtime: opens streams, sends, and hands on what comes, in its order."""

import asyncio
from collections.abc import AsyncIterator

from services.server.adapters.streaming_server import CHUNK, Backend
from services.server.core.spdy_frames import (
    MAX_PAYLOAD,
    Data,
    Frame,
    FrameDecoder,
    FrameEncoder,
    Pairs,
    Ping,
    RstStream,
    SynReply,
    SynStream,
)

PING_EVERY = 5.0  # seconds


class SpdyClient:
    """One connection. One task reads `frames`; while it does not read, the runtime has to wait."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._encoder, self._decoder = FrameEncoder(), FrameDecoder()
        self._next_stream = self._next_ping = 1

    def open(self, headers: Pairs) -> int:
        """Open a stream; its id."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._write(SynStream(stream, headers))
        return stream

    async def send(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        """Send data of the stream with this number; waits while the runtime does not take any. Raises OSError when
        it is gone."""
        for start in range(0, max(len(data), 1), MAX_PAYLOAD):
            part = data[start : start + MAX_PAYLOAD]
            self._write(Data(stream, part, fin and start + len(part) == len(data)))
            await self._backend.writer.drain()

    async def frames(self) -> AsyncIterator[SynReply | RstStream | Data]:
        """The runtime's frames for our streams, until it closes the connection. Raises SpdyProtocolError, OSError."""
        while data := await self._backend.reader.read(CHUNK):
            for frame in self._decoder.feed(data):
                match frame:
                    case Ping():
                        if frame.id % 2 == 0:
                            self._write(frame)
                    case SynReply() | RstStream() | Data():
                        yield frame
                    case _:
                        continue  # streams of the server's own, settings, windows, GOAWAY: nothing here depends on them

    async def keep_alive(self) -> None:
        """Ping until cancelled."""
        while True:
            await asyncio.sleep(PING_EVERY)
            self._write(Ping(self._next_ping))
            self._next_ping += 2

    def _write(self, frame: Frame) -> None:
        if not self._backend.writer.is_closing():
            self._backend.writer.write(self._encoder.encode(frame))
