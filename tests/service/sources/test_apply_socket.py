"""The socket and the directory of the local API for manifests: after a failure, and after a kill."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from services.sources.adapters.applied_files import AppliedFiles
from services.sources.adapters.apply_socket import ApplySocket
from services.sources.controllers.apply_endpoint import ApplyEndpoint
from services.sources.controllers.troubles import Troubles
from shared.agent.apply_api import SOCKET
from tests.fakes.memory_bus import MemoryNetwork
from tests.support.waits.deadline import WAIT_SECONDS


async def test_a_socket_that_could_not_be_opened_answers_once_it_can(tmp_path: Path) -> None:
    async def answered(_method: str, _path: str, _body: bytes) -> tuple[int, dict[str, Any]]:
        return 200, {}

    directory = Path(f"/proc/self/fd/{os.open(tmp_path, os.O_PATH)}")  # for the client: a socket's address is short
    served = ApplySocket(tmp_path / SOCKET, answered)
    (tmp_path / SOCKET).mkdir()
    for _ in range(10):
        with pytest.raises(IsADirectoryError):
            await served.open()
    assert [path.name for path in tmp_path.iterdir()] == [SOCKET]
    (tmp_path / SOCKET).rmdir()
    await served.open()
    reader, writer = await asyncio.open_unix_connection(str(directory / SOCKET))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(WAIT_SECONDS):
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()
    await served.close()
    os.close(int(directory.name))


async def test_what_a_kill_within_a_write_left_is_removed_and_no_other_file(tmp_path: Path) -> None:
    directory, names = tmp_path / "manifests", (".secret.default.s.4711.tmp", ".mine.tmp", ".secret.default.s.swp")
    directory.mkdir()
    for name in names:
        (directory / name).write_text("hunter2")
    troubles = Troubles(MemoryNetwork().bus("sources"))
    endpoint = ApplyEndpoint(AppliedFiles(directory), str(tmp_path), troubles, lambda _document, _path: {})
    running = asyncio.create_task(endpoint.run())
    async with asyncio.timeout(WAIT_SECONDS):
        while not (tmp_path / SOCKET).exists():
            await asyncio.sleep(0.01)
    assert sorted(path.name for path in directory.iterdir()) == sorted(names[1:])
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
