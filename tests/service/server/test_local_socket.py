"""The socket in the run directory serves the agent's user without credentials, and is replaced at a start."""

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import aiohttp.web
import pytest

from services.server.adapters.listener import listen_at
from services.server.core.listening.connections import LOCAL
from shared.agent.places import LOCAL_SOCKET
from tests.service.server.running import CONTAINER, NAMESPACE, POD, Running, configuration, pod_log, running

LOGS = f"http://local/containerLogs/{NAMESPACE}/{POD}/{CONTAINER}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(configuration(tmp_path, enable_debugging_handlers=False, read_only_port=0)) as server:
        yield server


async def get(run_dir: Path, url: str) -> tuple[int, str]:
    """Status and body over the socket."""
    connector = aiohttp.UnixConnector(path=str(run_dir / LOCAL_SOCKET))
    async with aiohttp.ClientSession(connector=connector) as client, client.get(url) as response:
        return response.status, await response.text()


async def test_it_serves_pods_and_logs_also_where_the_ports_do_not(server: Running, tmp_path: Path) -> None:
    path = pod_log(tmp_path)
    path.write_bytes(b"2024-01-01T00:00:01.000000000Z stdout F one\n")
    await server.node.run_pod(path)
    assert await get(tmp_path / "run", LOGS) == (200, "one\n")
    status, body = await get(tmp_path / "run", "http://local/pods")
    assert status == 200 and f'"{POD}"' in body
    assert (await get(tmp_path / "run", f"{LOGS}?tailLines=-1"))[0] == 422


async def test_only_its_user_may_open_it(server: Running, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "run" / LOCAL_SOCKET).stat().st_mode) == 0o600


async def test_a_successor_replaces_the_socket_and_what_a_killed_one_left(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / LOCAL_SOCKET).touch()
    (run_dir / ".4711.sock").touch()
    async with running(configuration(tmp_path)) as first:
        assert (await get(run_dir, "http://local/healthz"))[0] == 200
        assert not (run_dir / ".4711.sock").exists()
        second = await listen_at(run_dir / LOCAL_SOCKET, _teapot, LOCAL)
        await first.service.stop_listening()
        assert (await get(run_dir, "http://local/healthz"))[0] == 418
        await second.close()


async def _teapot(_request: aiohttp.web.BaseRequest) -> aiohttp.web.Response:
    return aiohttp.web.Response(status=418)
