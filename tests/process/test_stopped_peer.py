"""A stopped (SIGSTOP) service or caller costs the other side no memory without end, and goes on afterwards."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus.interface import NoAnswerError
from bus.manifest import new_manifest, prepare_run_dir, write_manifest
from bus.process_bus import ProcessBus
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.stopped import wait_stopped

ROOT = Path(__file__).parents[2]
REQUESTS, BYTES = 400, 1_400_000
MAX_GROWTH_BYTES = 100 << 20  # 32 MiB that wait, and what the allocator keeps; without a bound 560 MB


@dataclass(frozen=True, kw_only=True)
class Echo:
    """A request, and its answer; `text` is large in one of them."""

    number: int
    text: str = ""


SERVICE = """
import asyncio, sys
from pathlib import Path
from bus.manifest import new_manifest
from bus.process_bus import ProcessBus
from tests.process.test_stopped_peer import Echo

async def main():
    bus = ProcessBus("sources", new_manifest(Path(sys.argv[1])))
    bus.answer(Echo, answer)
    await bus.start()
    print("ready", flush=True)
    await asyncio.Event().wait()

async def answer(request):
    return Echo(number=request.number)

asyncio.run(main())
"""
CALLER = """
import asyncio, sys
from pathlib import Path
from bus.manifest import new_manifest
from bus.process_bus import ProcessBus
from tests.process.test_stopped_peer import BYTES, REQUESTS, Echo

async def main():
    bus = ProcessBus("observer", new_manifest(Path(sys.argv[1])))
    await bus.start()
    asking = [bus.ask("podsync", Echo(number=n), Echo, 120.0) for n in range(REQUESTS)]
    print("ready", flush=True)
    answers = await asyncio.gather(*asking)
    complete = [a.number for a in answers if len(a.text) == BYTES]
    print(len(set(complete)), flush=True)
    await bus.stop()

asyncio.run(main())
"""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peer:
    """The other process, once it is ready."""

    def __init__(self, program: str, run_dir: Path) -> None:
        self._command = (sys.executable, "-c", program, str(run_dir))

    async def __aenter__(self) -> "Peer":
        process = await asyncio.create_subprocess_exec(*self._command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        self.process = process
        try:
            assert await self.line() == "ready"
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), WAIT_SECONDS)).decode().strip()


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[ProcessBus]:
    """Not started."""
    prepare_run_dir(tmp_path / "r")
    write_manifest(manifest := new_manifest(tmp_path / "r"))
    yield (bus := ProcessBus("podsync", manifest))
    await bus.stop()


async def test_a_caller_keeps_a_bounded_number_of_bytes_for_a_stopped_service(bus: ProcessBus, tmp_path: Path) -> None:
    await bus.start()

    async def ask(number: int, timeout: float) -> bool:
        try:
            request = Echo(number=number, text=f"{number % 10}" * BYTES)
            return (await bus.ask("sources", request, Echo, timeout)).number == number
        except NoAnswerError:
            return False

    async with Peer(SERVICE, tmp_path / "r") as service:
        assert await ask(0, WAIT_SECONDS)
        service.process.send_signal(signal.SIGSTOP)
        wait_stopped(service.process.pid)
        before = most = resident_bytes()
        for number in range(0, REQUESTS, 10):
            assert not any(await asyncio.gather(*(ask(number + each, 0.02) for each in range(10))))
            most = max(most, resident_bytes())
        print(f"grew by {(most - before) >> 20} MiB")
        assert most - before < MAX_GROWTH_BYTES
        service.process.send_signal(signal.SIGCONT)
        assert all(await asyncio.gather(*(ask(number, WAIT_SECONDS) for number in range(15))))


async def test_too_many_bytes_of_requests_under_way_fail_at_once(bus: ProcessBus, tmp_path: Path) -> None:
    await bus.start()
    asked = [bus.ask("sources", Echo(number=n, text="x" * BYTES), Echo, 0.5) for n in range(40)]
    errors = [str(error) for error in await asyncio.gather(*asked, return_exceptions=True)]
    assert len([line for line in errors if line.endswith("to answer: no more are sent")]) == 40 - (32 << 20) // BYTES
    with pytest.raises(NoAnswerError, match=r"did not answer|within"):
        await bus.ask("sources", Echo(number=0, text="x" * BYTES), Echo, 0.1)


async def test_a_service_keeps_a_bounded_number_of_bytes_for_a_stopped_caller(bus: ProcessBus, tmp_path: Path) -> None:
    asked, all_asked, go_on = 0, asyncio.Event(), asyncio.Event()

    async def answer(request: Echo) -> Echo:
        nonlocal asked
        asked += 1
        if asked == REQUESTS:
            all_asked.set()
        await go_on.wait()
        return Echo(number=request.number, text=f"{request.number % 10}" * BYTES)

    bus.answer(Echo, answer)
    await bus.start()
    async with Peer(CALLER, tmp_path / "r") as client:
        async with asyncio.timeout(WAIT_SECONDS):
            await all_asked.wait()
        client.process.send_signal(signal.SIGSTOP)
        wait_stopped(client.process.pid)
        before = most = resident_bytes()
        go_on.set()
        for _ in range(50):
            await asyncio.sleep(0.02)
            most = max(most, resident_bytes())
        print(f"grew by {(most - before) >> 20} MiB")
        assert not bus.answers.in_progress()["Echo"], "all were computed"
        assert most - before < MAX_GROWTH_BYTES
        client.process.send_signal(signal.SIGCONT)
        assert await client.line() == str(REQUESTS)
