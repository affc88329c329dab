"""Reads how full a filesystem is. Blocks while its server does not answer."""

import os

from bus.messages.usage import FilesystemUsage


def read_filesystem(path: str, wall: float) -> FilesystemUsage | None:
    """The filesystem at the path; None where it cannot be read."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    size = status.f_frsize
    return FilesystemUsage(
        time=wall,
        available=size * status.f_bavail,
        capacity=size * status.f_blocks,
        used=size * (status.f_blocks - status.f_bfree),
        inodes=status.f_files,
        inodes_free=status.f_ffree,
        inodes_used=status.f_files - status.f_ffree,
    )
