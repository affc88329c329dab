"""Runs a program to its end from an event loop, without a fork.

`subprocess` uses vfork, so that no code of this process runs in the child before the program. The event loops' own
transports fork: a fork beside the threads of gRPC may crash before it executes anything.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

_PIECE_BYTES = 1 << 16  # read at a time
_MAX_REAP_SECONDS = 5.0  # for a killed program; one in uninterruptible I/O may take as long as its file system


class OutputTooLargeError(Exception):
    """The program wrote more than it may."""


class ChildResult(NamedTuple):
    """What a program wrote to its standard output, and its exit code; a negative one is the signal that ended it."""

    output: bytes
    exit_code: int


async def run_child(
    command: Sequence[str], request: bytes, environment: Mapping[str, str], *, time_limit: float, largest_output: int
) -> ChildResult:
    """Run `command` in a session of its own, with `request` on its standard input; return when it has ended and its
    output is closed.

    `time_limit` is in seconds, `largest_output` in bytes. Raises OSError or ValueError where the program can't be
    started, TimeoutError, and OutputTooLargeError. After an error or a cancellation its process group is killed.
    """
    child = _start(command, request, environment)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(time_limit):
            output = await _read(child.stdout, largest_output)
            await process_end(child.pid)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_REAP_SECONDS):
                await process_end(child.pid)
        raise
    finally:
        child.stdout.close()
        child.poll()  # takes the exit code, so that no zombie stays; `subprocess` retries at each later start
    return ChildResult(output, child.returncode)


async def process_end(process: int) -> None:
    """Wait until the process has ended; return at once when it is gone. Raises OSError without free descriptors."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        await end_of(descriptor)
    finally:
        os.close(descriptor)


async def end_of(descriptor: int) -> None:
    """Wait until the process of this pidfd has ended; any number may wait. Raises OSError without free descriptors."""
    own = os.dup(descriptor)  # a loop has one reader for each
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(own, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(own)
        os.close(own)


def _start(command: Sequence[str], request: bytes, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    # A file in memory instead of a pipe: the program need not read it, and the caller need not wait for that.
    with os.fdopen(os.memfd_create("request"), "w+b", buffering=0) as given:
        given.write(request)
        given.seek(0)
        return subprocess.Popen(
            command,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )


async def _read(pipe: IO[bytes], most: int) -> bytes:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    output = bytearray()
    try:
        while piece := await reader.read(_PIECE_BYTES):
            output += piece
            if len(output) > most:
                raise OutputTooLargeError(f"more than {most} bytes")
    finally:
        transport.close()
    return bytes(output)
