"""The port of the node page on 127.0.0.1: what it serves without credentials, and to whom."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.service.server.running import Running, configuration, free_port, running
from tests.support.node_page.page_node import PageNode
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    node = PageNode(tmp_path)
    async with running(configuration(tmp_path, node_page_port=free_port()), node) as server:
        node.publish(3)
        await node.network.settle()
        async with asyncio.timeout(WAIT_SECONDS):
            while "page" not in server.service.listeners:
                await asyncio.sleep(0.02)
        yield server


async def get(server: Running, path: str, method: str = "GET", host: str = "") -> tuple[int, str]:
    headers = {"Host": host} if host else {}
    return await server.get(f"http://127.0.0.1:{server.config.node_page_port}{path}", method, headers=headers)


@pytest.mark.long
async def test_the_page_its_state_and_stories_are_served(server: Running) -> None:
    assert "<title>" in (await get(server, "/bulkhead/"))[1]
    assert '"uid-1"' in (await get(server, "/bulkhead/state"))[1]
    assert "image registry.example/cart-1:0 is pulled" in (await get(server, "/bulkhead/explain/shop/uid-1"))[1]
    assert server.service.listeners["page"].port == server.config.node_page_port


async def test_nothing_else_is_served(server: Running, subtests: pytest.Subtests) -> None:
    for method, path in [
        ("GET", "/pods"),
        ("GET", "/configz"),
        ("GET", "/metrics"),
        ("GET", "/containerLogs/shop/cart-1/main"),
        ("POST", "/exec/shop/cart-1/main?output=1&command=id"),
        ("POST", "/run/shop/cart-1/main?cmd=id"),
        ("GET", "/logs/"),
        ("GET", "/debug/pprof/"),
        ("DELETE", "/metrics/slis"),
    ]:
        with subtests.test(method):
            assert await get(server, path, method) == (404, "404 page not found\n")


async def test_nothing_is_changed_through_it(server: Running) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert (await get(server, "/bulkhead/", method))[0] == 405


async def test_a_site_with_another_name_is_refused(server: Running, subtests: pytest.Subtests) -> None:
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "[::1", "10.0.0.1:10247"]:
        with subtests.test(host):
            assert await get(server, "/bulkhead/state", host=host) == (
                403,
                "this port is for 127.0.0.1 and localhost\n",
            )


@pytest.mark.long
async def test_names_of_this_machine_are_served_also_through_a_tunnel(
    server: Running, subtests: pytest.Subtests
) -> None:
    for host in ["localhost", "localhost:9000", "127.0.0.1", "127.0.0.1:9000"]:
        with subtests.test(host):
            assert (await get(server, "/bulkhead/state", host=host))[0] == 200


async def test_the_port_is_closed_by_default(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as server:
        assert "page" not in server.service.listeners and not server.config.node_page_port


@pytest.mark.long
async def test_thirty_pages_outlast_a_hundred_connections_without_a_complete_request(server: Running) -> None:
    port = server.config.node_page_port
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        address = f"http://127.0.0.1:{port}/bulkhead/events"
        pages = [await stack.enter_async_context(session.get(address)) for _ in range(30)]
        for _ in range(100):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            slow.sendall(b"GET /bulkhead/state HTTP/1.1\r\nHost: localhost\r\nX-")
            await asyncio.sleep(0)
        assert (await get(server, "/bulkhead/state"))[0] == 200
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*(page.content.readuntil(b'"uid-1"') for page in pages))
        assert server.service.page.pages == 30
