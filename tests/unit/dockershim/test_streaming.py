"""The streaming server before it knows a request: connections without a URL are bounded in count and time."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from services.dockershim.adapters import streaming
from services.dockershim.adapters.streaming import Forwarded, StreamingServer


@pytest.fixture
async def server() -> AsyncIterator[StreamingServer]:
    server = StreamingServer()
    await server.start()
    yield server
    await server.stop()


def port_of(server: StreamingServer) -> int:
    return urlsplit(server.url_of(Forwarded(sandbox_id="box"))).port or 0


async def answer_to(server: StreamingServer, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    writer.write(f"POST {path} HTTP/1.1\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_silent_connections_are_bounded_in_count_and_keep_no_other_from_its_stream(
    server: StreamingServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streaming, "MAX_HEADS", 3)
    silent = [await asyncio.open_connection("127.0.0.1", port_of(server)) for _ in range(5)]
    for reader, _ in silent[:2]:
        assert await reader.read() == b""  # closed, the oldest first
    path = urlsplit(server.url_of(Forwarded(sandbox_id="box"))).path
    assert (await answer_to(server, path)).startswith(b"HTTP/1.1 400 Bad Request"), "its URL was known"
    assert await silent[2][0].read() == b""
    assert not silent[3][0].at_eof() and not silent[4][0].at_eof()
    assert not caplog.records, "a flood of connections fills the log"
    for _, writer in silent:
        writer.close()


async def test_silent_connections_are_bounded_in_time(server: StreamingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_HEAD_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    assert await reader.read() == b""
    writer.close()


async def test_a_url_is_for_one_connection(server: StreamingServer) -> None:
    path = urlsplit(server.url_of(Forwarded(sandbox_id="box"))).path
    first, second = await answer_to(server, path), await answer_to(server, path)
    assert b"SPDY/3.1 alone" in first and second.startswith(b"HTTP/1.1 404 Not Found")
