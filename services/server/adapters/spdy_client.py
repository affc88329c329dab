"""Speaks SPDY/3.1 on a connection to the runtime: opens streams, sends, and yields the frames that arrive, in order."""

import asyncio
from collections.abc import AsyncIterator

from services.server.adapters.streaming_server import CHUNK_BYTES, Backend
from shared.spdy.frames import (
    MAX_PAYLOAD_BYTES,
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

PING_SECONDS = 5.0


class SpdyClient:
    """A SPDY connection. One task reads `frames`; while it does not read, the runtime has to wait."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._encoder, self._decoder = FrameEncoder(), FrameDecoder()
        self._next_stream = self._next_ping = 1

    def open(self, headers: Pairs) -> int:
        """Open a stream, and return its number."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._write(SynStream(stream, headers))
        return stream

    async def send(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        """Send data on the stream with this number; wait while the runtime takes none. Raises OSError when the runtime
        is gone."""
        for start in range(0, max(len(data), 1), MAX_PAYLOAD_BYTES):
            part = data[start : start + MAX_PAYLOAD_BYTES]
            self._write(Data(stream, part, fin and start + len(part) == len(data)))
            await self._backend.writer.drain()

    async def frames(self) -> AsyncIterator[SynReply | RstStream | Data]:
        """Yield the runtime's frames for our streams, until it closes the connection. Raises SpdyProtocolError,
        OSError."""
        while data := await self._backend.reader.read(CHUNK_BYTES):
            for frame in self._decoder.feed(data):
                match frame:
                    case Ping():
                        if frame.id % 2 == 0:
                            self._write(frame)
                    case SynReply() | RstStream() | Data():
                        yield frame
                    case _:
                        continue  # nothing here depends on streams of the server's own, settings, windows and GOAWAY

    async def keep_alive(self) -> None:
        """Send pings until cancelled."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            self._write(Ping(self._next_ping))
            self._next_ping += 2

    def _write(self, frame: Frame) -> None:
        if not self._backend.writer.is_closing():
            self._backend.writer.write(self._encoder.encode(frame))
