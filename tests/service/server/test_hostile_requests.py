"""Clients that send anything to every page: no traceback, no leaked stream, bounded memory, and others served."""

import asyncio
import gc
import logging
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from services.server.adapters import http_limits, system_log_files
from services.server.core.routes import DEBUG_RULES, PUBLIC_RULES
from shared.spdy.frames import SpdyProtocolError
from tests.service.server.main_listener import MainListener, main_listener
from tests.service.server.running import CONTAINER, NAMESPACE, POD, configuration
from tests.service.server.spdy_backend import Backend, streaming_backend
from tests.service.server.test_usage import UsageNode
from tests.support.waits.deadline import WAIT_SECONDS

SEEDS = range(4)
REQUESTS = 120  # of each seed
MOST_GROWTH = 64 << 20  # bytes
TARGETS = [rule.path + "/" * bool(rule.tree) for rule in (*PUBLIC_RULES, *DEBUG_RULES)]
STREAMS = [
    f"/exec/{NAMESPACE}/{POD}/{CONTAINER}?command=cat&input=1&output=1",
    f"/attach/{NAMESPACE}/{POD}/{CONTAINER}?input=1&output=1",
    f"/portForward/{NAMESPACE}/{POD}?port=80",
]
PIECES = [
    *("/", "..", "%2e%2e", "%2f", "%00", "%ff", "\\", "default", "web", "main", "x" * 300, "%zz", "é", ";", "&", "?"),
    *("#", "=", "tailLines", "=-1", "=99999999999999999999", "query", "pattern=(", "timeout=x", "seconds=1", "port=0"),
    *("port=a", "follow=true", "sinceTime=x", "limitBytes=1", "debug=1", "process=x", "format=y"),
    "only_cpu_and_memory=true",
]
HEADERS = [
    b"Connection: Upgrade",
    b"Connection: close",
    b"Upgrade: SPDY/3.1",
    b"Upgrade: websocket",
    b"X-Stream-Protocol-Version: v4.channel.k8s.io",
    b"X-Stream-Protocol-Version: portforward.k8s.io",
    b"X-Stream-Protocol-Version: none",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Version: 99",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Key: \xff",
    b"Sec-WebSocket-Protocol: v5.channel.k8s.io",
    b"Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io",
    b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.@@, x",
    b"Accept: application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
    b"Accept: \x00",
    b"Accept-Encoding: gzip",
    b"Range: bytes=5-1",
    b"If-Modified-Since: Sat, 99 Foo 10000 99:99:99 GMT",
    b"Authorization: Bearer \xe9\xff",
    b"Authorization: " + b"Bearer " * 50,
    b"Content-Length: 99999999999999999999",
    b"Content-Length: -1",
    b"Transfer-Encoding: chunked",
    b"Expect: 100-continue",
    b"Traceparent: 00-x",
    b": empty",
    b"no colon",
    b"Host: ",
]


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with streaming_backend() as backend:
        yield backend


@pytest.fixture
async def server(
    tmp_path: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[MainListener]:
    caplog.set_level(logging.INFO)
    (tmp_path / "varlog").mkdir()
    monkeypatch.setattr(system_log_files, "SYSTEM_LOGS", tmp_path / "varlog")
    config = configuration(tmp_path, enable_system_log_query=True)
    async with main_listener(config, node=UsageNode()) as server:
        server.running.node.cri.streaming_url = f"http://127.0.0.1:{backend.port}"
        await server.running.node.run_pod()
        yield server


def request_of(chance: random.Random) -> bytes:
    """A request that is almost right, or not at all."""
    target = chance.choice(TARGETS + STREAMS) + "".join(chance.choices(PIECES, k=chance.randrange(5)))
    method = chance.choice(["GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW", "get", ""])
    version = chance.choice(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", ""])
    line = f"{method} {target} {version}".encode("utf-8", "replace")
    head = b"\r\n".join([line, b"Host: node", *chance.sample(HEADERS, chance.randrange(6))])
    request = bytearray(head + b"\r\n\r\n" + chance.randbytes(chance.choice([0, 0, 10, 5000])))
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        request[chance.randrange(len(request))] = chance.randrange(256)
    return bytes(request[: chance.choice([len(request), len(request), chance.randrange(len(request))])])


async def exchange(server: MainListener, *pieces: bytes) -> bytes:
    """Send the pieces; what comes back within a moment, or until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port, limit=1 << 16)
    answer = b""
    with suppress(ConnectionError, TimeoutError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(0.03):  # an answer that comes later is no concern of this client, which leaves
            while len(answer) < 1 << 20 and (block := await reader.read(1 << 16)):
                answer += block
    writer.transport.abort()
    return answer


@asynccontextmanager
async def served_meanwhile(server: MainListener) -> AsyncIterator[None]:
    """Another client is answered all the time."""

    async def ask() -> int:
        answered = 0
        while True:
            async with asyncio.timeout(WAIT_SECONDS):
                assert (await server.request("GET", "/healthz/ping"))[:2] == (200, "ok")
            answered += 1
            await asyncio.sleep(0.01)

    asking = asyncio.create_task(ask())
    try:
        yield
        assert not asking.done()
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    # After the other request: two at once leave two connections open for 30 seconds.
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await server.request("GET", "/healthz/ping"))[:2] == (200, "ok")


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the server logged with a traceback; the runtime of the test may fail as it likes."""
    return [record.getMessage() for record in caplog.records if record.exc_info and record.name != "asyncio"] + [
        str(record.exc_info[1])
        for record in caplog.records
        if record.name == "asyncio" and record.exc_info and not isinstance(record.exc_info[1], SpdyProtocolError)
    ]


def memory() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def settled(server: MainListener, connections: int) -> None:
    """Wait until the listener has no other connections than before."""
    async with asyncio.timeout(WAIT_SECONDS):
        while len(server.connections) > connections:
            await asyncio.sleep(0.02)


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", SEEDS)
async def test_requests_of_any_kind(server: MainListener, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance, before = random.Random(seed), memory()
    async with served_meanwhile(server):
        for _ in range(REQUESTS // 10):
            answers = await asyncio.gather(*(exchange(server, request_of(chance)) for _ in range(10)))
            for answer in answers:
                assert b"Traceback" not in answer
                assert not answer or answer.startswith(b"HTTP/1."), answer[:80]
                assert not answer.startswith(b"HTTP/1.1 500") or b"internal server error" not in answer, answer[:400]
    await settled(server, 1)
    assert not tracebacks(caplog)
    assert memory() - before <= MOST_GROWTH


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", SEEDS)
async def test_streams_that_break_off_anywhere(
    server: MainListener, backend: Backend, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance, before, open_before = random.Random(seed), memory(), descriptors()
    upgrades = [
        b"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n",
        b"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n",
        *(
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Protocol: %s\r\n" % protocol
            for protocol in (b"v5.channel.k8s.io", b"v4.channel.k8s.io", b"SPDY/3.1+portforward.k8s.io", b"none")
        ),
    ]
    frames = [
        bytes.fromhex("80030001010000120000000100000000000078bbe3c6a7c2e78cb0000000ffff"),  # SYN_STREAM
        bytes.fromhex("8003000600000004") + b"\0\0\0\1",  # PING
        bytes.fromhex("8003000300000008000000010000000500"),  # RST_STREAM
        bytes.fromhex("0000000101ffffff"),  # DATA without its content
        bytes.fromhex("82850000000000") + b"\0hello",  # WebSocket, masked
        bytes.fromhex("82ff7fffffffffffffff00000000"),  # a length of 2^63
        bytes.fromhex("88820000000003e8"),  # close
        bytes.fromhex("8900"),  # a ping without a mask
    ]
    async with served_meanwhile(server):
        for _ in range(REQUESTS // 10):
            connections = []
            for _ in range(10):
                head = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n%s\r\n" % (
                    chance.choice(STREAMS).encode(),
                    chance.choice(upgrades),
                )
                head = head.replace(b"POST", b"GET") if b"websocket" in head else head
                content = b"".join(chance.choices([*frames, chance.randbytes(40)], k=chance.randrange(6)))
                cut = chance.randrange(len(content) + 1)
                connections.append(exchange(server, head, content[:cut], content[cut : cut + chance.randrange(60)]))
            for answer in await asyncio.gather(*connections):
                assert b"Traceback" not in answer and b"internal server error" not in answer, answer[:400]
    await settled(server, 1)
    async with asyncio.timeout(WAIT_SECONDS):
        while descriptors() > open_before + 8:  # those of the other client, and of the backend's last connections
            await asyncio.sleep(0.05)
    assert not tracebacks(caplog)
    assert memory() - before <= MOST_GROWTH


@pytest.mark.long
async def test_heads_of_ten_mebibytes_and_heads_that_never_end(
    server: MainListener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_limits, "MAX_HEAD_SECONDS", 1.0)
    before, part = memory(), b"a" * (64 << 10)  # in parts: the client is in this process, and is not to use the memory
    large = [b"GET /pods HTTP/1.1\r\nHost: x\r\nX-Large: ", *[part] * 160]
    async with served_meanwhile(server):
        answers = await asyncio.gather(*(exchange(server, *large) for _ in range(8)))
        assert all(not answer or answer.startswith((b"HTTP/1.1 431", b"HTTP/1.0 431")) for answer in answers)
        slow = [await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port) for _ in range(100)]
        for _ in range(5):
            for _, writer in slow:
                writer.write(b"G")
            await asyncio.sleep(0.05)
        async with asyncio.timeout(WAIT_SECONDS):
            for reader, writer in slow:
                with suppress(ConnectionError):
                    while await reader.read(1000):
                        pass
                writer.close()
    assert not tracebacks(caplog)
    assert memory() - before <= MOST_GROWTH
