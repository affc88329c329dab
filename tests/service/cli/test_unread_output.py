"""`bulkhead logs POD` and `bulkhead exec` whose output is not read, or cannot be written."""

import asyncio
import os
import select
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.server.running import Running, configuration, pod_log, running
from tests.service.server.spdy_backend import Backend, streaming_backend
from tests.support.agents.preloaded import Preloaded
from tests.support.waits.deadline import WAIT_SECONDS

PROGRAM = "tests.programs.container_command"
MUCH = 32 << 20  # bytes, more than all buffers on the way hold
LINE = b"2024-01-01T00:00:00.000000000Z stdout F " + b"x" * 1000 + b"\n"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    path = pod_log(tmp_path)
    path.write_bytes(LINE * (MUCH // len(LINE)))
    async with streaming_backend() as backend, running(configuration(tmp_path)) as server:
        flood(backend)
        server.node.cri.streaming_url = f"http://127.0.0.1:{backend.port}"
        await server.node.run_pod(path)
        yield server


def flood(backend: Backend) -> None:
    """The command writes much at once."""
    backend.flood = MUCH


class Command:
    """The command with a descriptor as its standard output, which is closed here."""

    def __init__(self, server: Running, kind: str, output: int) -> None:
        self._errors = os.memfd_create("stderr")
        try:
            self.process = Preloaded(PROGRAM, (kind, server.config.run_dir), (0, output, self._errors))
        finally:
            os.close(output)

    async def end(self) -> tuple[int, str]:
        """Exit code and standard error of the process, which ends by itself."""
        try:
            code = await asyncio.to_thread(self.process.wait)
            return code, os.pread(self._errors, 1 << 20, 0).decode()
        finally:
            self.process.kill()
            os.close(self._errors)


def waits_to_write(process: int, pipe: int) -> bool:
    """Whether the pipe is full and the process sleeps."""
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "S" and not select.select([], [pipe], [], 0)[1]


@pytest.mark.parametrize("kind", ["logs", "exec"])
async def test_one_ctrl_c_ends_a_command_whose_output_is_not_read(server: Running, kind: str) -> None:
    reader, writer = os.pipe()
    command = Command(server, kind, os.dup(writer))
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not waits_to_write(command.process.pid, writer):
                await asyncio.sleep(0.01)
        command.process.send_signal(signal.SIGINT)
        assert await command.end() == (130, "")
    finally:
        command.process.kill()
        os.close(reader)
        os.close(writer)


@pytest.mark.long
@pytest.mark.share(2)
@pytest.mark.parametrize("kind", ["logs", "exec"])
async def test_a_full_disk_is_one_line(server: Running, kind: str) -> None:
    code, errors = await Command(server, kind, os.open("/dev/full", os.O_WRONLY)).end()
    assert code == 1
    assert "output" in errors and errors.endswith("No space left on device (write it elsewhere)\n"), errors
    assert len(errors.splitlines()) == 1


@pytest.mark.long
@pytest.mark.share(2)
@pytest.mark.parametrize("kind", ["logs", "exec"])
async def test_a_pipe_that_closes_ends_it_without_a_line(server: Running, kind: str) -> None:
    reader, writer = os.pipe()
    command = Command(server, kind, writer)
    assert await asyncio.to_thread(os.read, reader, 10)
    os.close(reader)
    assert await command.end() == (1, "")
