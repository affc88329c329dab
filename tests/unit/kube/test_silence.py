"""An API server that goes silent: dials, pooled connections and idle ones are given up in time."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from shared.kube import dialing
from shared.kube.connection import open_connection
from shared.kube.interface import ApiUnansweredError, ApiUnreachableError
from tests.unit.kube.stand_in import client_of, put_credentials

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Fading:
    """Answers `{}`; `fall_silent` is for ever for the connections there are, like a path that drops their packets."""

    def __init__(self) -> None:
        self.url = ""
        self.answer = ANSWER
        self.connections = 0
        self.together = 1  # answers once so many requests are there
        self._waiting = 0
        self._all_there = asyncio.Event()
        self._silent_up_to = 0

    def fall_silent(self) -> None:
        self._silent_up_to = self.connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self._waiting += 1
                if self._waiting >= self.together:
                    self._all_there.set()
                await self._all_there.wait()
                if number > self._silent_up_to:
                    writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def fading() -> AsyncIterator[Fading]:
    fading = Fading()
    server = await asyncio.start_server(fading.serve, "127.0.0.1", 0)
    fading.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fading
    finally:
        server.close()
        await server.wait_closed()


async def test_a_pooled_connection_that_went_silent_costs_one_request(tmp_path: Path) -> None:
    async with fading() as server:
        put_credentials(tmp_path, 1, server.url)
        async with client_of(tmp_path) as client:
            await client.get("/x")
            server.fall_silent()
            with pytest.raises(ApiUnreachableError, match="no answer in time"):
                await client.get("/x", timeout=0.1)
            assert await client.get("/x") == {}
            assert server.connections == 2


async def test_dropped_connections_are_not_waited_for(tmp_path: Path) -> None:
    async with fading() as server:
        put_credentials(tmp_path, 1, server.url)
        server.together = 3
        async with client_of(tmp_path) as client:
            await asyncio.gather(*(client.get("/x") for _ in range(3)))
            assert server.connections == 3
            server.fall_silent()
            hanging = asyncio.create_task(client.get("/x"))
            with pytest.raises(ApiUnreachableError, match="no answer in time"):
                await client.get("/x", timeout=0.1)
            await client.drop_connections()
            assert await client.get("/x") == {}  # without that it would have got the third one
            assert not hanging.done()
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)


async def test_a_dial_without_an_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dialing.CONNECT_TIMEOUT_SECONDS <= 5
    monkeypatch.setattr(dialing, "CONNECT_TIMEOUT_SECONDS", 0.2)
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full, closing(_dialled(full)):
        put_credentials(tmp_path, 1, f"http://127.0.0.1:{full.getsockname()[1]}")
        async with client_of(tmp_path, timeout=60) as client, asyncio.timeout(60):
            with pytest.raises(ApiUnreachableError, match="no answer in time") as caught:
                await client.get("/x")
            assert caught.value.is_outage


async def test_only_a_request_without_a_connection_is_an_outage(tmp_path: Path) -> None:
    async with fading() as server:
        put_credentials(tmp_path, 1, server.url)
        async with client_of(tmp_path) as client:
            await client.get("/x")  # dials, which takes its time on a busy machine
            server.fall_silent()
            with pytest.raises(ApiUnansweredError, match="no answer in time") as late:
                await client.get("/x", timeout=0.1)
            assert not late.value.is_outage
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full, closing(_dialled(full)):
        put_credentials(tmp_path, 2, f"http://127.0.0.1:{full.getsockname()[1]}")
        async with client_of(tmp_path) as client:
            with pytest.raises(ApiUnreachableError, match="no answer in time") as undialled:
                await client.get("/x", timeout=0.1)
            assert undialled.value.is_outage


async def test_a_peer_that_is_gone_is_noticed_by_the_kernel_within_ten_seconds(tmp_path: Path) -> None:
    async with fading() as server:
        server.answer = ANSWER[:-1]  # not at its end: the connection is still in use
        opened = open_connection(put_credentials(tmp_path, 1, server.url), "a test")
        try:
            async with opened.session.get(opened.url("/x", {})) as answer:
                assert answer.connection is not None and answer.connection.transport is not None
                used = answer.connection.transport.get_extra_info("socket")
                assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                first, between, unconfirmed = (
                    used.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
                )
        finally:
            await opened.retire()
    # With a limit for unconfirmed bytes an idle connection breaks at the first probe after that.
    assert first + between < unconfirmed / 1000 <= first + 2 * between <= 10


def _dialled(full: socket.socket) -> socket.socket:
    """The one connection that fits into a queue that is not emptied: the next one is not answered."""
    return socket.create_connection(full.getsockname())
