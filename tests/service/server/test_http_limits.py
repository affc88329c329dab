"""The limits of every HTTP listener, and the health listener's few paths, over real sockets."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from services.server.adapters import http_limits
from services.server.adapters.listener import Listener, listen
from services.server.core.listening.connections import HEALTHZ, MAIN
from tests.service.server.running import CONTAINER, NAMESPACE, POD, Running, configuration, pod_log, running
from tests.service.server.test_container_logs import _all_served, line
from tests.support.waits.deadline import WAIT_SECONDS

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(configuration(tmp_path)) as server:
        while "healthz" not in server.service.listeners:
            await asyncio.sleep(0)
        yield server


class Answer(asyncio.Protocol):
    """Takes what a client receives. A StreamReader forgets it where a reset follows, as after a refusal."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


async def ask(server: Running, request: bytes) -> bytes:
    """Everything the read-only listener sends until it closes."""
    port = server.config.read_only_port
    transport, answer = await asyncio.get_running_loop().create_connection(Answer, "127.0.0.1", port)
    transport.write(request)
    async with asyncio.timeout(WAIT_SECONDS):
        await answer.ended.wait()
    return answer.received


def test_the_limits_are_the_kubelets() -> None:
    assert (http_limits.MAX_IDLE_SECONDS, http_limits.MAX_REQUEST_SECONDS) == (90, 4 * 3600)
    assert 1 << 20 < http_limits.MAX_HEAD_BYTES <= (1 << 20) + 4096


def test_a_head_has_ten_seconds_and_two_hundred_fields() -> None:
    assert (http_limits.MAX_HEAD_SECONDS, http_limits.MAX_HEADER_FIELDS) == (10, 200)


@pytest.mark.parametrize(
    ("fields", "size", "status"),
    [
        (1, 1_000_000, 200),
        (198, 5_000, 200),
        (199, 10, 400),
        (1, 1_600_000, 431),
        (198, 8_000, 431),
        (10, 1_000_000, 431),
    ],
)
async def test_a_head_of_one_mebibyte_is_read_and_no_more(server: Running, fields: int, size: int, status: int) -> None:
    heads = b"".join(b"X-%d: %s\r\n" % (number, b"a" * size) for number in range(fields))
    answer = await ask(server, REQUEST[:-2] + b"Connection: close\r\n" + heads + b"\r\n")
    assert int(answer.split(b" ", 2)[1]) == status


async def test_every_request_of_a_connection_has_a_head_of_its_own(server: Running) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.read_only_port)
    for _ in range(3):
        writer.write(REQUEST[:-2] + b"X: " + b"a" * 700_000 + b"\r\n\r\n")
        async with asyncio.timeout(WAIT_SECONDS):
            assert await reader.readuntil(b"\r\n\r\nok") != b""
    writer.close()


async def test_a_client_that_vanished_is_asked_after_every_fifteen_seconds(server: Running) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.read_only_port)
    client = writer.get_extra_info("sockname")[1]
    writer.write(REQUEST)
    async with asyncio.timeout(WAIT_SECONDS):
        await reader.readuntil(b"\r\n\r\nok")
        while (timer := kernel_timer(server.config.read_only_port, client))[0] != "keep-alive":
            await asyncio.sleep(0.01)
    assert 5 < timer[1] <= 15
    writer.close()


def kernel_timer(port: int, client: int) -> tuple[str, float]:
    """The timer that the kernel has for the server's end of this connection, and in how many seconds it is due."""
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = row.split()
        if [int(end.partition(":")[2], 16) for end in fields[1:3]] == [port, client]:
            kind, _, due = fields[5].partition(":")
            return "keep-alive" if kind == "02" else kind, int(due, 16) / os.sysconf("SC_CLK_TCK")
    return "", 0.0


async def test_an_idle_connection_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "MAX_IDLE_SECONDS", 0.1)
    async with running(configuration(tmp_path)) as server:
        assert (await ask(server, REQUEST)).endswith(b"\r\n\r\nok")


@pytest.mark.parametrize("sent", [b"", b"GET /hea"])
async def test_a_request_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_limits, "MAX_HEAD_SECONDS", 0.1)
    async with running(configuration(tmp_path)) as server:
        assert await ask(server, sent) == b""


async def test_the_head_of_a_later_request_has_its_own_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(configuration(tmp_path)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.config.read_only_port)
        for pause in (0, 0.3, 0.3):  # between requests the connection may idle for longer than a head may take
            writer.write(REQUEST)
            async with asyncio.timeout(WAIT_SECONDS):
                await reader.readuntil(b"\r\n\r\nok")
            # Only now: the first head has its seconds from the start of the connection, and the machine may be busy.
            monkeypatch.setattr(http_limits, "MAX_HEAD_SECONDS", 0.2)
            await asyncio.sleep(pause)
        writer.write(b"GET /hea")
        async with asyncio.timeout(WAIT_SECONDS):
            assert await reader.read() == b""
        writer.close()


async def test_an_answer_that_takes_too_long_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.server.controllers.listeners.ServedEndpoints", _all_served)
    monkeypatch.setattr(http_limits, "MAX_REQUEST_SECONDS", 2.0)  # the first line comes through several threads
    log = pod_log(tmp_path)
    log.write_bytes(line("one"))
    async with running(configuration(tmp_path)) as server:
        await server.node.run_pod(log)
        path = f"/containerLogs/{NAMESPACE}/{POD}/{CONTAINER}?follow=true"
        answer = await ask(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b"one\n" in answer and not answer.endswith(b"0\r\n\r\n")
        assert (await ask(server, REQUEST[:-2] + b"Connection: close\r\n\r\n")).endswith(b"\r\n\r\nok")


async def test_the_health_listener_has_ping_alone(server: Running, subtests: pytest.Subtests) -> None:
    for path, status, body in [
        ("/healthz", 200, "ok"),
        ("/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n"),
        ("/healthz?verbose=1&exclude=ping", 200, "[+]ping excluded: ok\nhealthz check passed\n"),
        (
            "/healthz?verbose&exclude=other",
            200,
            '[+]ping ok\nwarn: some health checks cannot be excluded: no matches for "other"\nhealthz check passed\n',
        ),
        ("/healthz/ping", 200, "ok"),
        ("/healthz/syncloop", 404, "404 page not found\n"),
        ("/healthz/log", 404, "404 page not found\n"),
        ("/pods", 404, "404 page not found\n"),
        ("/", 404, "404 page not found\n"),
    ]:
        with subtests.test(path):
            assert await server.get(server.healthz + path) == (status, body)


@pytest.mark.long
async def test_health_without_the_sync_loop_is_the_health_listeners(server: Running) -> None:
    server.node.network.kill("podsync")
    await server.node.network.advance(400)
    assert (await server.get(server.healthz + "/healthz"))[0] == 200
    assert (await server.get(server.read_only + "/healthz"))[0] == 500


async def test_a_websocket_is_read_until_it_ends_while_the_listener_waits_for_that() -> None:
    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        http_limits.connection_of(request).begin_stream()
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    listener = await listen("127.0.0.1", 0, echo, MAIN)
    async with aiohttp.ClientSession() as client, asyncio.timeout(WAIT_SECONDS):
        async with client.ws_connect(f"http://127.0.0.1:{listener.port}/") as socket:
            await listener.stop_listening()
            ended = asyncio.create_task(listener.drain(3600))
            for number in range(3):
                await socket.send_str(f"line {number}")
                assert await socket.receive_str() == f"line {number}"
            assert not ended.done()
        await ended


async def test_an_address_that_is_none_refuses_the_listener() -> None:
    async def handler(_request: object) -> Listener:
        raise AssertionError

    with pytest.raises(ValueError, match="nowhere"):
        await listen("nowhere", 0, handler, HEALTHZ)  # type: ignore[arg-type]
