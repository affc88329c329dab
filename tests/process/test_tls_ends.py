"""A peer that ends TLS, and is written to all the same, fills no log: real connections on the loop of the services."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.bootstrap.adapters.serving_pair import make_self_signed
from services.frame.event_loop import new_event_loop
from services.server.adapters import upgrade_proxy
from services.server.adapters.hijack import Client
from shared.http_get.exchange import exchange
from shared.http_get.http2 import READ_BYTES
from shared.http_get.request import HttpTarget
from tests.process.tls_site import Site
from tests.service.server.running import CONTAINER, NAMESPACE, POD
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.http_get.frames import Frame, frame

CLOSED = "SSL connection is closed"
OUTPUT = b"x" * 16384
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def on_the_loop_of_services(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(scenario())


def lines_about_closed(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.getMessage() == CLOSED for record in caplog.records)


@asynccontextmanager
async def writing_backend() -> AsyncIterator[tuple[int, list[int]]]:
    """A runtime's stream that writes OUTPUT every few milliseconds until it is closed: its port, and how often it
    has written."""
    written: list[int] = []
    sessions: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sessions[asyncio.current_task()] = writer
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH)
        try:
            while not writer.is_closing():
                writer.write(OUTPUT)
                await writer.drain()
                written.append(len(OUTPUT))
                await asyncio.sleep(0.002)
        except OSError:
            pass
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        try:
            yield listener.sockets[0].getsockname()[1], written
        finally:  # a session that the end of the loop cancels leaves its transport open: the loop cannot be closed then
            for writer in sessions.values():
                writer.transport.abort()
            await asyncio.gather(*(session for session in sessions if session))


class ShyClient:
    """Begins an exec over TLS, reads nothing of its output, ends TLS, and keeps the connection open."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._raw = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")

    def begin(self) -> None:
        self._do(self._tls.do_handshake)
        path = f"/exec/{NAMESPACE}/{POD}/{CONTAINER}?command=yes&output=1"
        self._tls.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode())
        assert b" 101 " in self._do(lambda: self._tls.read(4096))

    def end_tls(self) -> None:
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # the other side's end of TLS was not read
        self._raw.sendall(self._out.read())

    def close(self) -> None:
        self._raw.close()

    def _do(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._raw.sendall(self._out.read())
                self._in.write(self._raw.recv(4096))
            finally:
                self._raw.sendall(self._out.read())


def test_an_exec_whose_client_ends_tls_and_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clients: list[Client] = []

    def take_over(request: Any) -> Client:
        clients.append(Client(request))
        return clients[-1]

    async def scenario() -> None:
        async with writing_backend() as (port, written), site.running() as server, asyncio.timeout(WAIT_SECONDS):
            server.node.cri.streaming_url = f"http://127.0.0.1:{port}"
            await server.node.run_pod()
            client = ShyClient(server.config.port, site.client(site.admin)["ssl"])
            await asyncio.to_thread(client.begin)
            while not clients or not clients[0].writer.transport.get_write_buffer_size():
                await asyncio.sleep(0.001)
            client.end_tls()
            while not clients[0].writer.is_closing():
                await asyncio.sleep(0.001)
            ended_at = len(written)
            while len(written) < ended_at + 100 and "to-client" in {task.get_name() for task in asyncio.all_tasks()}:
                await asyncio.sleep(0.01)
            client.close()

    site = Site(tmp_path)
    monkeypatch.setattr(upgrade_proxy, "Client", take_over)
    with caplog.at_level(logging.WARNING, "asyncio"):
        on_the_loop_of_services(scenario)
    assert lines_about_closed(caplog) == 0


def test_a_probed_server_that_ends_tls_behind_thousands_of_pings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, content in zip(("crt", "key"), make_self_signed("node1", datetime.now(UTC)), strict=True):
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    context.set_alpn_protocols(["h2"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        pings = frame(Frame.PING, 0, b"12345678", 0) * (48 * READ_BYTES // 17)
        writer.write(frame(Frame.SETTINGS, 0, stream=0) + pings)
        writer.close()

    async def scenario() -> None:
        listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        async with listener:
            port = listener.sockets[0].getsockname()[1]
            for _ in range(20):
                with pytest.raises(Exception, match="too many frames"):
                    await exchange(HttpTarget("https", "127.0.0.1", port, "/", (("Host", "x"),)), lambda _: 100)

    with caplog.at_level(logging.WARNING, "asyncio"):
        on_the_loop_of_services(scenario)
    assert lines_about_closed(caplog) == 0
