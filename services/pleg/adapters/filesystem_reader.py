"""Reads how full filesystems are. One that does not answer keeps one thread, and only its own figures are missing."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from bus.messages.cgroup_details import HostFilesystem
from bus.messages.usage import FilesystemUsage, filesystem_usage
from services.pleg.adapters.block_devices import device_of

MAX_READ_SECONDS = 2.0  # for the answer of a filesystem
MAX_READS = 4  # filesystems that are read at the same time


class FilesystemReader:
    """Reads filesystems in threads. A path whose last reading has not ended is not read again, so that hung ones do not
    take all threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_READS, thread_name_prefix="filesystem")
        self._reading: dict[str, asyncio.Future[HostFilesystem | None]] = {}

    async def read(self, path: str, wall: float) -> HostFilesystem | None:
        """Read the filesystem at the path; None where it cannot be read, or does not answer within 2 s."""
        if path in self._reading:
            return None
        reading = asyncio.get_running_loop().run_in_executor(self._threads, _read, path, wall)
        self._reading[path] = reading
        reading.add_done_callback(lambda _: self._reading.pop(path, None))
        try:
            async with asyncio.timeout(MAX_READ_SECONDS):
                return await asyncio.shield(reading)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Begin no more readings, and do not wait for those that hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _read(path: str, wall: float) -> HostFilesystem | None:
    usage = read_filesystem(path, wall)
    return None if usage is None else HostFilesystem(device=device_of(path), usage=usage)


def read_filesystem(path: str, wall: float) -> FilesystemUsage | None:
    """Read the filesystem at the path; None where it cannot be read. Blocks while its server does not answer."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return filesystem_usage(
        wall,
        block=status.f_frsize,
        blocks=status.f_blocks,
        free=status.f_bfree,
        available=status.f_bavail,
        inodes=status.f_files,
        inodes_free=status.f_ffree,
    )
