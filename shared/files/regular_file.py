"""Reads a file that another program may have put in place, without hanging on a FIFO or a device. The call blocks."""

import os
import stat
from pathlib import Path


def read_regular_file(path: Path, limit: int) -> bytes:
    """Return at most `limit` bytes of the file. Raises OSError, also for what is no regular file."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "is not a regular file")
        return file.read(limit)
