"""Pidfds report the end of real processes, on both event loops, and leave no descriptor behind."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from services.pleg.adapters.pidfd import Pidfds

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def pidfds_open() -> int:
    return sum(1 for entry in Path("/proc/self/fd").iterdir() if _target(entry) == "anon_inode:[pidfd]")


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        return ""


@pytest.mark.parametrize("loop", LOOPS)
def test_the_end_of_a_process_is_reported_once(loop: Callable[[], Any], process: subprocess.Popen[bytes]) -> None:
    async def check() -> None:
        ended: asyncio.Queue[str] = asyncio.Queue()
        before = pidfds_open()
        pidfds = Pidfds(ended.put_nowait)
        pidfds.watch("c", process.pid)
        process.kill()
        async with asyncio.timeout(60):
            assert await ended.get() == "c"
        assert len(pidfds) == 0 and pidfds_open() == before
        await asyncio.sleep(0)
        assert ended.empty()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_process_no_longer_watched_is_not_reported(loop: Callable[[], Any], process: subprocess.Popen[bytes]) -> None:
    async def check() -> None:
        ended: list[str] = []
        before = pidfds_open()
        pidfds = Pidfds(ended.append)
        pidfds.watch("c", process.pid)
        pidfds.watch("d", os.getpid())
        pidfds.unwatch("c")
        pidfds.unwatch("never")
        process.kill()
        await asyncio.to_thread(process.wait)
        await asyncio.sleep(0)
        pidfds.close()
        assert ended == [] and pidfds_open() == before

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


async def test_a_process_that_is_gone_cannot_be_watched(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    pidfds = Pidfds(lambda key: None)
    with pytest.raises(ProcessLookupError):
        pidfds.watch("c", process.pid)
    assert len(pidfds) == 0


async def test_a_key_is_watched_once() -> None:
    pidfds = Pidfds(lambda key: None)
    pidfds.watch("c", os.getpid())
    with pytest.raises(ValueError, match="watched already"):
        pidfds.watch("c", os.getpid())
    pidfds.close()
