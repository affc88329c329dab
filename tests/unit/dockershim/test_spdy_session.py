"""Streams of a SPDY session: what a client sends arrives whole, however slowly it is read."""

import asyncio

import pytest

from services.dockershim.adapters.spdy_session import Session, Stream
from shared.spdy.frames import Data, FrameEncoder, SynStream


class Client:
    """A client whose bytes are all there; what the session writes is dropped."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()

    def write(self, data: bytes) -> None:
        """Drop what the session sends."""

    async def drain(self) -> None:
        """Never wait."""

    def is_closing(self) -> bool:
        """Stay open."""
        return False


async def read_slowly(stream: Stream) -> bytes:
    received = b""
    async for piece in stream.data():
        for _ in range(5):
            await asyncio.sleep(0)
        received += piece
    return received


async def test_an_input_that_ends_while_much_of_it_is_unread_arrives_whole() -> None:
    client, encoder = Client(), FrameEncoder()
    pieces = [bytes([number]) * 1000 for number in range(60)]
    client.reader.feed_data(encoder.encode(SynStream(1, (("streamtype", "stdin"),))))
    for number, piece in enumerate(pieces):
        client.reader.feed_data(encoder.encode(Data(1, piece, fin=number == len(pieces) - 1)))
    async with Session(client.reader, client) as session:  # type: ignore[arg-type]
        stream = await session.wait_for("stdin")
        assert await read_slowly(stream) == b"".join(pieces)


async def test_what_arrived_before_the_client_left_is_still_read() -> None:
    client, encoder = Client(), FrameEncoder()
    client.reader.feed_data(encoder.encode(SynStream(1, (("streamtype", "stdin"),))))
    for _ in range(10):
        client.reader.feed_data(encoder.encode(Data(1, b"x" * 10)))
    client.reader.feed_eof()
    async with Session(client.reader, client) as session:  # type: ignore[arg-type]
        stream = await session.wait_for("stdin")
        assert await read_slowly(stream) == b"x" * 100


async def test_a_client_that_leaves_is_noticed_while_nobody_reads_what_it_has_typed() -> None:
    client, encoder = Client(), FrameEncoder()
    client.reader.feed_data(encoder.encode(SynStream(1, (("streamtype", "stdin"),))))
    for _ in range(1000):
        client.reader.feed_data(encoder.encode(Data(1, b"x")))
    client.reader.feed_eof()
    async with Session(client.reader, client) as session:  # type: ignore[arg-type]
        await asyncio.wait_for(session.closed.wait(), 1.0)


async def test_what_nobody_reads_is_bounded() -> None:
    client, encoder = Client(), FrameEncoder()
    client.reader.feed_data(encoder.encode(SynStream(1, (("streamtype", "stdin"),))))
    for _ in range(40):
        client.reader.feed_data(encoder.encode(Data(1, b"x" * 64 * 1024)))
    client.reader.feed_eof()
    async with Session(client.reader, client) as session:  # type: ignore[arg-type]
        stream = await session.wait_for("stdin")
        for _ in range(200):
            await asyncio.sleep(0)
        assert not session.closed.is_set()
        assert await read_slowly(stream) == b"x" * 40 * 64 * 1024


async def test_what_nobody_reads_of_all_streams_together_is_bounded() -> None:
    client, encoder = Client(), FrameEncoder()
    for number in range(1, 80, 2):
        client.reader.feed_data(encoder.encode(SynStream(number, (("streamtype", str(number)),))))
        client.reader.feed_data(encoder.encode(Data(number, b"x" * 64 * 1024)))
    client.reader.feed_eof()
    async with Session(client.reader, client) as session:  # type: ignore[arg-type]
        for _ in range(200):
            await asyncio.sleep(0)
        assert not session.closed.is_set()
        assert session.find("29") is not None and session.find("39") is None
        for number in range(1, 80, 2):
            session.forget(await session.wait_for(str(number)))  # a stream that nobody uses any more makes room
        await asyncio.wait_for(session.closed.wait(), 1.0)


@pytest.mark.long
async def test_single_bytes_that_nobody_reads_are_bounded() -> None:
    client, encoder = Client(), FrameEncoder()
    client.reader.feed_data(encoder.encode(SynStream(1, (("streamtype", "stdin"),))))
    client.reader.feed_data(encoder.encode(Data(1, b"x")) * 10_000)
    client.reader.feed_eof()
    async with Session(client.reader, client) as session:  # type: ignore[arg-type]
        stream = await session.wait_for("stdin")
        for _ in range(200):
            await asyncio.sleep(0)
        assert not session.closed.is_set()
        assert await read_slowly(stream) == b"x" * 10_000


async def test_a_stream_with_long_headers_is_refused() -> None:
    client, encoder = Client(), FrameEncoder()
    client.reader.feed_data(encoder.encode(SynStream(1, (("streamtype", "stdin"), ("port", "8" * 100_000)))))
    client.reader.feed_data(encoder.encode(SynStream(3, (("streamtype", "error"),))))
    async with Session(client.reader, client) as session:  # type: ignore[arg-type]
        await session.wait_for("error")
        assert session.find("stdin") is None
