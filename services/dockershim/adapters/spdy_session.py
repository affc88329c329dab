"""A SPDY/3.1 connection as a server has it: the streams that the client opens, and their data in both directions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType

from shared.spdy.frames import (
    MAX_PAYLOAD_BYTES,
    Data,
    Frame,
    FrameDecoder,
    FrameEncoder,
    Ping,
    RstStream,
    SpdyProtocolError,
    SynReply,
    SynStream,
)

CHUNK_BYTES = 64 * 1024
MAX_STREAMS = 512  # open at the same time: a port-forward has two for each connection
# Of all streams together, what nobody has read; then the connection is not read, and that its client leaves is not
# noticed. A piece counts as more than its bytes, because a client may send single ones.
_MAX_WAITING_BYTES, _PIECE_BYTES = 1024 * 1024, 256
_MAX_HEADER_BYTES = 1024  # of a stream: they are kept as long as it is open
_REFUSED_STREAM = 3
_MAX_CLOSE_SECONDS = 5.0


class Stream:
    """A stream of the client. `name` is its type; `headers` have the port and the request of a port-forward."""

    def __init__(self, session: "Session", number: int, headers: dict[str, str]) -> None:
        self._session, self._number = session, number
        self.headers, self.name = headers, headers.get("streamtype", "")
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.waiting = 0  # bytes that `data` has not yielded, as the session counts them
        self._ended = False

    async def data(self) -> AsyncIterator[bytes]:
        """Yield what the client sends, until it ends the stream or leaves."""
        while (piece := await self._pieces.get()) is not None:
            self._session.count(self, -len(piece) - _PIECE_BYTES)
            yield piece

    async def send(self, data: bytes, *, fin: bool = False) -> None:
        """Send data; wait while the client takes none. Raises OSError when it has left."""
        for start in range(0, max(len(data), 1), MAX_PAYLOAD_BYTES):
            part = data[start : start + MAX_PAYLOAD_BYTES]
            await self._session.write(Data(self._number, part, fin and start + len(part) == len(data)))

    def take(self, piece: bytes, *, fin: bool) -> None:
        """Keep what has arrived for `data`."""
        if piece and not self._ended:
            self._session.count(self, len(piece) + _PIECE_BYTES)
            self._pieces.put_nowait(piece)
        if fin:
            self.end()

    def end(self) -> None:
        """Note that nothing more arrives. What has arrived stays for `data`, which ends behind it."""
        if not self._ended:
            self._ended = True
            self._pieces.put_nowait(None)


class Session:
    """The connection. Enter the context manager: its task reads the frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._encoder, self._decoder = FrameEncoder(), FrameDecoder()
        self._streams: dict[int, Stream] = {}
        self._opened: asyncio.Queue[Stream | None] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._waiting, self._read_on = 0, asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()

    async def __aenter__(self) -> "Session":
        self._task = asyncio.create_task(self._read(), name="spdy")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def find(self, name: str) -> Stream | None:
        """Return the first open stream of this type."""
        return next((stream for stream in self._streams.values() if stream.name == name), None)

    async def wait_for(self, name: str) -> Stream:
        """Return the stream of this type once it is there. Raises ConnectionError when the client leaves."""
        while (stream := self.find(name)) is None:
            if self.closed.is_set():
                raise ConnectionResetError("the client left before it opened its streams")
            self._changed.clear()
            await self._changed.wait()
        return stream

    async def opened(self) -> AsyncIterator[Stream]:
        """Yield each stream that the client opens, until it leaves."""
        while (stream := await self._opened.get()) is not None:
            yield stream

    def forget(self, stream: Stream) -> None:
        """Note that a stream is not used any more."""
        self._streams = {number: other for number, other in self._streams.items() if other is not stream}
        self.count(stream, -stream.waiting)

    def count(self, stream: Stream, size: int) -> None:
        """Note that so many bytes more (less than 0: fewer) of a stream wait to be read."""
        stream.waiting += size
        self._waiting += size
        if self._waiting < _MAX_WAITING_BYTES:
            self._read_on.set()

    async def write(self, frame: Frame) -> None:
        """Send a frame. Raises OSError."""
        if self._writer.is_closing():
            raise ConnectionResetError("the client has left")
        self._writer.write(self._encoder.encode(frame))
        await self._writer.drain()

    async def finish(self) -> None:
        """Wait until the client closes the connection, for a few seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_CLOSE_SECONDS):
                await self.closed.wait()

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(CHUNK_BYTES):
                for frame in self._decoder.feed(data):
                    await self._take(frame)
                    while self._waiting >= _MAX_WAITING_BYTES:
                        self._read_on.clear()
                        await self._read_on.wait()
        except (OSError, SpdyProtocolError):
            return
        finally:
            self.closed.set()
            self._changed.set()
            self._opened.put_nowait(None)
            for stream in self._streams.values():
                stream.end()

    async def _take(self, frame: Frame) -> None:
        match frame:
            case SynStream() if (
                max(len(self._streams), self._opened.qsize()) >= MAX_STREAMS
                or sum(len(name) + len(value) for name, value in frame.headers) > _MAX_HEADER_BYTES
            ):
                await self.write(RstStream(frame.stream, _REFUSED_STREAM))
            case SynStream():
                stream = Stream(self, frame.stream, dict(frame.headers))
                self._streams[frame.stream] = stream
                await self.write(SynReply(frame.stream))
                if frame.fin:
                    stream.end()
                self._opened.put_nowait(stream)
                self._changed.set()
            case Ping():
                await self.write(frame)
            case Data() if frame.stream in self._streams:
                self._streams[frame.stream].take(frame.payload, fin=frame.fin)
            case RstStream() if frame.stream in self._streams:
                self._streams.pop(frame.stream).end()
            case _:
                return  # settings, windows and GOAWAY: nothing here depends on them
