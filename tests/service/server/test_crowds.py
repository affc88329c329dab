"""Too many clients of one listener, over real sockets: who ends, and who is answered all the same."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from services.server.adapters import accepting, http_limits
from services.server.adapters.http_limits import count_as_authorized
from services.server.adapters.listener import Listener, listen
from services.server.adapters.plain_answer import plain
from services.server.core.listening.connections import ConnectionLimits
from tests.support.waits.deadline import WAIT_SECONDS

LIMITS = ConnectionLimits(
    unauthorized=8,
    unauthorized_of_address=6,
    unauthorized_bytes=100_000,
    authorized=3,
    authorized_of_address=2,
    large_answers=3,
)
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LET_IN = b"GET /in HTTP/1.1\r\nHost: x\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(gate: asyncio.Event | None = None, asked: asyncio.Event | None = None) -> AsyncIterator[Listener]:
    """A listener that answers /slow once the gate is open, and lets in who asks for /in."""
    gate, asked = gate or asyncio.Event(), asked or asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/slow":
            asked.set()
            await gate.wait()
        if request.path == "/in" and not count_as_authorized(request):
            return plain(503, "too many connections\n")
        return plain(200, "ok" if request.path != "/large" else "x" * (64 << 20))

    listener = await listen("127.0.0.1", 0, answer, LIMITS)
    try:
        yield listener
    finally:
        async with asyncio.timeout(WAIT_SECONDS):
            await listener.close()


async def connect(listener: Listener, address: str = "127.0.0.1") -> Streams:
    return await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(address, 0))


async def ask(streams: Streams, request: bytes = REQUEST) -> int:
    """The status of the answer."""
    reader, writer = streams
    writer.write(request)
    async with asyncio.timeout(WAIT_SECONDS):
        status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
        await reader.readuntil(b"ok" if status == 200 else b"\n")
    return status


async def ended(streams: Streams) -> bool:
    """Wait until the server has closed it."""
    async with asyncio.timeout(WAIT_SECONDS):
        with suppress(ConnectionError):
            while await streams[0].read(1000):
                pass
    return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0)


async def close(*connections: Streams) -> None:
    for _, writer in connections:
        writer.transport.abort()


@pytest.mark.long
async def test_large_answers_that_clients_do_not_read_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "MAX_HEAD_SECONDS", 10 * WAIT_SECONDS)  # the last one asks after all others
    async with listening() as listener:
        stalled = [await connect(listener) for _ in range(LIMITS.large_answers + 2)]
        for number, (_, writer) in enumerate(stalled):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(REQUEST.replace(b"/", b"/large", 1))
            count = min(number + 1, LIMITS.large_answers)
            await until(lambda count=count: len(listener.connections._sending) == count)  # type: ignore[misc]
        for reader, writer in stalled[:2]:
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            with suppress(ConnectionError):
                async with asyncio.timeout(WAIT_SECONDS):
                    assert len(await reader.read()) < 64 << 20
        new = await connect(listener)
        assert await ask(new) == 200
        await close(*stalled, new)


async def test_idle_connections_end_for_new_ones_that_ask() -> None:
    async with listening() as listener:
        idle = [await connect(listener) for _ in range(LIMITS.unauthorized_of_address)]
        await until(lambda: len(listener.connections) == len(idle))
        new = [await connect(listener) for _ in range(3)]
        assert [await ask(streams) for streams in new] == [200] * 3
        assert [await ended(streams) for streams in idle[:3]] == [True] * 3
        assert [await ask(streams) for streams in idle[3:]] == [200] * 3
        await close(*idle, *new)


async def test_a_request_under_way_does_not_end_for_a_new_connection_while_others_idle() -> None:
    async with listening() as listener:
        slow = await connect(listener)
        slow[1].write(REQUEST.replace(b"GET /", b"GET /slow"))
        idle = [await connect(listener) for _ in range(20)]
        await ended(idle[0])
        slow_ends = asyncio.create_task(ended(slow))
        assert await ask(idle[-1]) == 200
        assert not slow_ends.done()
        slow_ends.cancel()
        await close(slow, *idle)


async def test_one_address_does_not_end_the_connections_of_another() -> None:
    async with listening() as listener:
        other = [await connect(listener, "127.0.0.2") for _ in range(2)]
        await until(lambda: len(listener.connections) == 2)
        crowd = [await connect(listener) for _ in range(20)]
        await ended(crowd[0])
        assert [await ask(streams) for streams in other] == [200] * 2
        await close(*other, *crowd)


async def test_the_largest_partial_head_ends_when_all_together_are_too_large() -> None:
    async with listening() as listener:
        small, large = await connect(listener), await connect(listener)
        small[1].write(REQUEST[:-2] + b"X: " + b"a" * 30_000)
        large[1].write(REQUEST[:-2] + b"X: " + b"a" * 90_000)
        assert await ended(large)
        assert await ask(small, b"\r\n\r\n") == 200
        await close(small, large)


async def test_requests_one_after_the_other_are_not_added_up() -> None:
    async with listening() as listener:
        streams = await connect(listener)
        for _ in range(10):
            assert await ask(streams, REQUEST[:-2] + b"X: " + b"a" * 30_000 + b"\r\n\r\n") == 200
        await close(streams)


async def test_requests_sent_ahead_of_their_answers_are_read_a_few_at_a_time_and_all_answered() -> None:
    async with listening() as listener:
        reader, writer = streams = await connect(listener)
        writer.write(REQUEST * 1000)
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(1000):
                await reader.readuntil(b"\r\n\r\nok")
        await close(streams)


async def test_a_head_begun_behind_another_request_has_its_seconds_after_that_ones_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, asked = asyncio.Event(), asyncio.Event()
    async with listening(gate, asked) as listener:
        reader, writer = streams = await connect(listener)
        writer.write(REQUEST.replace(b"GET /", b"GET /slow"))
        await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
        monkeypatch.setattr(http_limits, "MAX_HEAD_SECONDS", 0.2)
        writer.write(b"GET /hea")
        await asyncio.sleep(0.3)  # longer than a head may take, which counts from the answer on
        gate.set()
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await reader.read()).endswith(b"\r\n\r\nok")
        await close(streams)


@pytest.mark.long
async def test_requests_behind_one_that_waits_are_held_a_few_kibibytes_at_a_time_and_all_answered() -> None:
    gate, asked = asyncio.Event(), asyncio.Event()
    async with listening(gate, asked) as listener:
        reader, writer = streams = await connect(listener)
        fields = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 500) for number in range(10))
        request = b"GET /slow HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n"
        writer.write(request * 500)
        await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
        for _ in range(100):
            other = await connect(listener)
            assert await ask(other) == 200  # the server reads what it can meanwhile
            await close(other)
            assert listener.connections.held < 90_000, "of 3 MB"
        gate.set()
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(500):
                await reader.readuntil(b"\r\n\r\nok")
        await close(streams)


@pytest.mark.long
async def test_an_answer_that_is_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "MAX_REQUEST_SECONDS", 1.0)
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1)
        writer.write(REQUEST.replace(b"GET /", b"GET /large"))
        await until(lambda: len(listener.connections) == 1)
        await until(lambda: len(listener.connections) == 0)
        await close((reader, writer))


async def test_connections_that_were_let_in_stay_and_are_only_so_many() -> None:
    async with listening() as listener:
        streams = [await connect(listener) for _ in range(3)]
        assert [await ask(stream, LET_IN) for stream in streams] == [200, 200, 503]
        crowd = [await connect(listener) for _ in range(20)]
        assert await ask(crowd[-1]) == 200
        assert [await ask(stream, LET_IN) for stream in streams[:2]] == [200, 200]
        assert await ended(streams[2])
        await close(*streams, *crowd)


async def test_a_client_that_tls_has_lost_is_let_in_without_an_error() -> None:
    class Lost(asyncio.Transport):
        """Has what TLS leaves in the turn of the loop before it tells its protocol that the connection is lost."""

        def get_extra_info(self, name: str, default: object = None) -> object:
            return default

        def is_closing(self) -> bool:
            return True

        def close(self) -> None:
            pass

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError

    server = http_limits.LimitedServer(answer, LIMITS, logging.getLogger())
    connection = server.open("127.0.0.1")
    connection.connection_made(Lost())
    assert connection.count_as_authorized()
    connection.connection_lost(None)
    assert len(server.table) == 0


async def test_what_clients_leave_is_counted_no_more() -> None:
    async with listening() as listener:
        streams = [await connect(listener) for _ in range(5)]
        assert [await ask(stream, LET_IN) for stream in streams[:2]] == [200, 200]
        await until(lambda: len(listener.connections) == 5)
        await close(*streams)
        await until(lambda: len(listener.connections) == 0)


async def test_a_listener_that_has_stopped_may_be_closed() -> None:
    async with listening() as listener:
        streams = await connect(listener)
        assert await ask(streams) == 200
        await listener.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await connect(listener)
        assert await ask(streams) == 200
        await close(streams)


async def test_a_shortage_of_descriptors_is_one_line_and_passes_and_a_client_that_left_at_once_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "_SHORTAGE_PAUSE_SECONDS", 0.01)
    failures = [OSError(errno.EMFILE, "Too many open files")] * 3 + [ConnectionAbortedError()]
    accept_now = socket.socket.accept

    def accept(listening: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return accept_now(listening)

    monkeypatch.setattr(socket.socket, "accept", accept)
    async with listening() as listener:
        streams = await connect(listener)
        assert await ask(streams) == 200
        await close(streams)
    assert not failures
    assert [record.message for record in caplog.records] == [
        "cannot accept connections: Too many open files; trying again each second"
    ]


async def test_a_request_with_a_body_is_the_last_of_its_connection_and_is_read_whole() -> None:
    async with listening() as listener:
        reader, writer = streams = await connect(listener)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"a" * 100_000 + REQUEST)
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await reader.read()
        assert answer.endswith(b"\r\n\r\nok") and answer.count(b"HTTP/1.1 200") == 1
        assert b"\r\nConnection: close\r\n" in answer
        await close(streams)


async def test_a_head_that_comes_byte_by_byte_is_one_request_and_empty_lines_before_it_are_none() -> None:
    async with listening() as listener:
        reader, writer = streams = await connect(listener)
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\r\n\r\n" + REQUEST + b"\r\n" + REQUEST:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(2):
                assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")
        await close(streams)
