"""Where the temporary files of tests that compute are: in memory, for the files of a unit test live for milliseconds.

Each run has a directory of its own there. One that was killed could not remove it: the next run does.
"""

import os
import shutil
import tempfile
from pathlib import Path

from services.volume.adapters.mounts import mount_table

MEMORY = Path("/dev/shm")
MIN_FREE_BYTES = 1 << 30  # where there is less (64 MiB in a container of Docker), the files are on the disk
_PREFIX = "bulkhead-tests-"


def begin_in(memory: Path = MEMORY) -> Path | None:
    """Remove what runs that have ended left in `memory`, and return a new directory there, None where it has no room
    for files of tests or is not writable."""
    for left in memory.glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            remove(left)
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < MIN_FREE_BYTES:
        return None
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=memory))


def remove(directory: Path) -> None:
    """Remove the directory with all that is in it, unless something is mounted there."""
    if not any(Path(mount.path).is_relative_to(directory) for mount in mount_table()):
        shutil.rmtree(directory, ignore_errors=True)
