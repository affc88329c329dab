"""How long exec and attach over a WebSocket may last: as long as something moves (server.md 13.2, 13.6)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.server.adapters import remote_command
from tests.service.server.running import CONTAINER, NAMESPACE, POD, Running, configuration, running
from tests.service.server.spdy_backend import streaming_backend
from tests.service.server.test_container_logs import _all_served
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A server whose read-only listener serves streams; what is typed comes back."""
    monkeypatch.setattr("services.server.controllers.listeners.ServedEndpoints", _all_served)
    async with streaming_backend() as backend, running(configuration(tmp_path)) as server:
        server.node.cri.streaming_url = f"http://127.0.0.1:{backend.port}"
        await server.node.run_pod()
        yield server


async def connect(server: Running) -> Any:
    """The client's end of an exec."""
    path = f"/exec/{NAMESPACE}/{POD}/{CONTAINER}?command=cat&input=1&output=1"
    return await server.client.ws_connect(server.read_only + path, protocols=["v5.channel.k8s.io"])


async def test_no_time_limit_of_requests_holds_for_a_stream(server: Running) -> None:
    listener = server.service.listeners["read-only"]
    socket: Any = await connect(server)
    await socket.receive()
    assert (len(listener.connections), listener.timers) == (1, 0)
    await socket.close()


async def test_a_stream_ends_after_four_hours_without_a_message_and_not_before(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remote_command.MAX_IDLE_SECONDS == 4 * 3600
    now, looks = 0.0, 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    monkeypatch.setattr(remote_command, "monotonic", clock)
    monkeypatch.setattr(remote_command, "MAX_IDLE_SECONDS", 0.2)
    socket: Any = await connect(server)
    assert (await socket.receive()).data == b"\x01"
    for moment in (0.15, 0.3, 0.45):  # more than 0.2 s in all, and never that long without a message
        now = moment
        await socket.send_bytes(b"\0typed")
        assert (await socket.receive()).data == b"\x01typed"
    before = looks
    async with asyncio.timeout(WAIT_SECONDS):
        while looks == before:
            await asyncio.sleep(0.01)
        await socket.send_bytes(b"\0still there")
        assert (await socket.receive()).data == b"\x01still there"
        now = 0.7
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
