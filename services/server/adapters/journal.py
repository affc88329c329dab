"""Runs journalctl for queries of the node's logs, and stops it when the client leaves or the time is over."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from shared.process.child_process import OutputTooLargeError, process_end, run_child

_PIECE_BYTES = 64 << 10  # read at a time
_MAX_UNIT_LIST_BYTES = 4 << 20  # of the list of all units
_MAX_REAP_SECONDS = 5.0


async def units(seconds: float) -> str:
    """Return the names of the units that the journal has entries of, "" where there is no journal."""
    command = ("journalctl", "--field", "_SYSTEMD_UNIT")
    try:
        found = await run_child(command, b"", os.environ, time_limit=seconds, largest_output=_MAX_UNIT_LIST_BYTES)
    except (OSError, TimeoutError, OutputTooLargeError):
        return ""
    return found.output.decode(errors="replace")


async def journal_output(command: Sequence[str]) -> AsyncGenerator[bytes, None]:
    """Yield what the command writes, its errors included; close the iterator to stop it. Raises OSError."""
    child = _start(command)
    assert child.stdout is not None
    reader = asyncio.StreamReader()
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), child.stdout
        )
        try:
            while piece := await reader.read(_PIECE_BYTES):
                yield piece
        finally:
            transport.close()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_REAP_SECONDS):
                await process_end(child.pid)
        child.stdout.close()
        child.poll()


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
