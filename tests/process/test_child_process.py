"""Programs that a service runs, on both event loops; beside the threads of gRPC and under load."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import uvloop

from shared.process.child_process import ChildResult, OutputTooLargeError, run_child

Run = Callable[[Coroutine[Any, Any, Any]], Any]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def shell(script: str, request: bytes = b"", *, time_limit: float = 30.0, largest: int = 1000) -> ChildResult:
    command = ["/bin/sh", "-c", script]
    return await run_child(command, request, dict(os.environ), time_limit=time_limit, largest_output=largest)


@both_loops
def test_a_program_gets_its_request_and_returns_output_and_exit_code(run: Run) -> None:
    large = b"x" * (1 << 20)  # more than a pipe takes at once
    assert run(shell("cat", large, largest=1 << 21)) == (large, 0)
    assert run(shell("echo early; exit 3", large)) == (b"early\n", 3)
    assert run(shell("kill -9 $$")) == (b"", -9)


@both_loops
def test_a_program_that_writes_too_much_or_takes_too_long_is_ended(run: Run) -> None:
    with pytest.raises(OutputTooLargeError):
        run(shell("yes", largest=1000))
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        run(shell("sleep 60", time_limit=0.2))
    assert time.monotonic() - began < 50


def test_a_program_that_is_missing_raises_the_systems_error() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(run_child(["/no/such"], b"", {}, time_limit=1.0, largest_output=1))


@both_loops
def test_no_fork_handler_runs(run: Run) -> None:
    """gRPC has such handlers: they take its locks before a fork, and cannot while its threads work."""
    forks: list[bool] = []
    os.register_at_fork(before=lambda: forks.append(True))
    assert run(shell("true")) == (b"", 0)
    assert forks == []


@both_loops
def test_no_child_stays_as_a_zombie_and_no_descriptor_open(run: Run) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def several() -> int:
        await shell("true")
        before = descriptors()
        await asyncio.gather(*(shell("true") for _ in range(20)))
        return descriptors() - before

    assert run(several()) <= 0
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert [c for c in children if "(sh)" in Path(f"/proc/{c}/stat").read_text()] == []


@pytest.mark.long
def test_none_of_5000_children_is_lost_beside_the_threads_of_grpc() -> None:

    async def calls(channel: grpc.aio.Channel) -> None:
        call = channel.unary_unary("/a/b", bytes, bytes)
        while True:  # keeps the threads of gRPC at work: each call fails at once
            try:
                await call(b"", timeout=1)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0)

    async def main() -> list[int]:
        channel = grpc.aio.insecure_channel("unix:/no/such/socket")
        busy = [asyncio.create_task(calls(channel)) for _ in range(8)]
        places = asyncio.Semaphore(20)
        environment = dict(os.environ)

        async def one(number: int) -> int:
            async with places:
                command = ["/bin/sh", "-c", "read n; exit $n"]
                result = await run_child(
                    command, f"{number % 100}\n".encode(), environment, time_limit=60, largest_output=10
                )
                return result.exit_code - number % 100

        wrong = [n for n in await asyncio.gather(*(one(number) for number in range(5000))) if n]
        for task in busy:
            task.cancel()
        await channel.close(None)
        return wrong

    assert uvloop.run(main()) == []
    assert "grpc" in sys.modules
