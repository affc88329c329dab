"""Chooses the directory for the temporary files of tests that compute. It is in memory, for these files live for
milliseconds.

Each run has a directory of its own there, and its lock while it runs. One that was killed could not remove it: the next
run does.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from services.volume.adapters.mounts import mount_table

MEMORY = Path("/dev/shm")
MIN_FREE_BYTES = 1 << 30  # where there is less (64 MiB in a container of Docker), the files are on the disk
_PREFIX = "bulkhead-tests-"


def begin_in(memory: Path = MEMORY) -> Path | None:
    """Remove what runs that have ended left in `memory`, and return a new directory there. It is locked until this
    process ends. None is returned where `memory` has no room for files of tests or is not writable."""
    if not os.access(memory, os.W_OK):
        return None
    everything = _open(memory)
    try:
        fcntl.flock(everything, fcntl.LOCK_EX)  # else another run takes a directory that has no lock yet for a left one
        for left in memory.glob(f"{_PREFIX}*"):
            _remove_left(left)
        if shutil.disk_usage(memory).free < MIN_FREE_BYTES:
            return None
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=memory))
        fcntl.flock(_open(directory), fcntl.LOCK_EX)
        return directory
    finally:
        os.close(everything)


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove_left(directory: Path) -> None:
    """Remove the directory of a run that has ended. A lock tells that also of a run in another PID namespace."""
    try:
        lock = _open(directory)
    except FileNotFoundError:
        return  # its run has ended just now, and removed it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        remove(directory)
    finally:
        os.close(lock)


def remove(directory: Path) -> None:
    """Remove the directory with all that is in it, unless something is mounted there."""
    if not any(Path(mount.path).is_relative_to(directory) for mount in mount_table()):
        shutil.rmtree(directory, ignore_errors=True)
