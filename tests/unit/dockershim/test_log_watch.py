"""The kernel's events of Docker's log files: more of them than the kernel keeps."""

import asyncio
from contextlib import suppress
from pathlib import Path

from services.dockershim.adapters.log_watch import LogWatch
from tests.support.waits.deadline import WAIT_SECONDS


async def test_a_log_whose_events_the_kernel_has_dropped_is_looked_at(tmp_path: Path) -> None:
    busy, quiet = tmp_path / "busy", tmp_path / "quiet"
    seen, watch = asyncio.Event(), LogWatch()
    for directory in (busy, quiet):
        directory.mkdir()
    watch.add(busy, lambda: None)
    watch.add(quiet, seen.set)
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with (busy / "1").open("wb", 0) as one, (busy / "2").open("wb", 0) as other:
        for number in range(most + 1):  # equal events, one after the other, would count as one
            (one, other)[number % 2].write(b".")
    (quiet / "log").touch()
    running = asyncio.create_task(watch.run())
    try:
        await asyncio.wait_for(seen.wait(), WAIT_SECONDS)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
