"""Reads from the kernel how full a mounted volume is (volumes.md 21); blocking."""

import os
from pathlib import Path

from bus.messages.usage import FilesystemUsage, filesystem_usage


def usage_of_filesystem(path: Path, wall: float) -> FilesystemUsage:
    """Return capacity and usage of the file system at the path. `wall`: seconds since the epoch. Raises OSError."""
    status = os.statvfs(path)
    return filesystem_usage(
        wall,
        block=status.f_frsize,
        blocks=status.f_blocks,
        free=status.f_bfree,
        available=status.f_bavail,
        inodes=status.f_files,
        inodes_free=status.f_ffree,
    )


def usage_of_device(path: Path, wall: float) -> FilesystemUsage:
    """Return the size of a block device, of which the used part is not known. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return FilesystemUsage(time=wall, capacity=os.lseek(descriptor, 0, os.SEEK_END))
    finally:
        os.close(descriptor)
