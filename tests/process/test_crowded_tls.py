"""TLS clients that send nothing, or the beginning of a handshake only, beside one that asks."""

import asyncio
from pathlib import Path

import pytest

from services.server.adapters import accepting, http_limits
from services.server.core.listening import connections
from services.server.core.listening.connections import ConnectionLimits
from tests.process.tls_site import Connection, Site
from tests.service.server.running import Running
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = pytest.mark.both_loops

LIMITS = ConnectionLimits(
    unauthorized=20,
    unauthorized_of_address=10,
    unauthorized_bytes=2 << 20,  # more than a head may have, so that a head that is too large is refused before this
    authorized=30,
    authorized_of_address=25,
)
HELLO = bytes.fromhex("160301020001000100")  # the first bytes of a ClientHello of 512 bytes


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(connections, "MAIN", LIMITS)
    return Site(tmp_path)


async def begin(server: Running, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port)
    writer.write(sent)
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        try:
            await reader.read()
        except ConnectionError:
            return


@pytest.mark.parametrize("sent", [b"", HELLO])
async def test_a_handshake_that_does_not_come_is_not_waited_for(
    site: Site, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "MAX_HANDSHAKE_SECONDS", 0.1)
    async with site.running() as server:
        reader, writer = await begin(server, sent)
        await ended(reader)
        writer.close()
        async with asyncio.timeout(WAIT_SECONDS):
            while len(server.service.listeners["main"].connections):
                await asyncio.sleep(0)


async def test_a_head_that_does_not_come_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "MAX_HEAD_SECONDS", 0.3)
    async with site.running() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port, ssl=site.client()["ssl"])
        writer.write(b"GET /hea")
        await ended(reader)
        writer.close()


async def test_a_head_that_is_too_large_gets_431(site: Site) -> None:
    async with site.running() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.config.port, ssl=site.client()["ssl"])
        writer.write(b"GET /pods HTTP/1.1\r\nHost: x\r\nX: " + b"a" * http_limits.MAX_HEAD_BYTES)
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        writer.transport.abort()


@pytest.mark.parametrize("sent", [b"", HELLO])
async def test_connections_that_wait_end_for_those_that_ask(site: Site, sent: bytes) -> None:
    async with site.running() as server:
        admin = site.client(site.admin)["ssl"]
        stays = await Connection.open(server, admin)
        assert await stays.status() == 200
        crowd = [await begin(server, sent) for _ in range(3 * LIMITS.unauthorized_of_address)]
        new = await Connection.open(server, admin)
        assert await new.status() == 200
        for reader, _ in crowd[: LIMITS.unauthorized_of_address]:
            await ended(reader)
        assert await stays.status() == 200
        assert len(server.service.listeners["main"].connections) <= LIMITS.unauthorized_of_address + 2
        for _, writer in crowd:
            writer.transport.abort()
        await new.close()
        await stays.close()


async def test_anonymous_requests_do_not_keep_a_connection_open(site: Site) -> None:
    async with site.running(anonymous_auth=True) as server:
        nameless, admin = site.client()["ssl"], site.client(site.admin)["ssl"]
        first = [await Connection.open(server, context) for context in (nameless, admin)]
        assert [await connection.status() for connection in first] == [200, 200]
        crowd = [await Connection.open(server, nameless) for _ in range(LIMITS.unauthorized_of_address)]
        assert {await connection.status() for connection in crowd} == {200}
        assert await first[1].status() == 200
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await first[0].status()
        for connection in [first[1], *crowd]:
            await connection.close()


async def test_a_hundred_handshakes_at_once_all_come_to_an_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    many = ConnectionLimits(unauthorized=200, unauthorized_of_address=150, unauthorized_bytes=1 << 20)
    monkeypatch.setattr(connections, "MAIN", many)
    monkeypatch.setattr(accepting, "MAX_HANDSHAKE_SECONDS", WAIT_SECONDS)  # also where the machine is busy
    async with site.running() as server:
        admin = site.client(site.admin)["ssl"]
        opened = await asyncio.gather(*(Connection.open(server, admin) for _ in range(100)))
        assert len({id(connection) for connection in opened}) == 100
        for connection in opened:
            await connection.close()
