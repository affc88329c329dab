"""Removes damaged files of libcni, which writes one for the interfaces of each sandbox, without fsync.

After a power cut such a file may be empty or contain zeros. Then no stop of its sandbox succeeds, and its pod never
starts again; where the file is absent, the stop succeeds. Only files of an earlier boot are removed, because libcni may
be writing a later one.
"""

import json
import logging
import stat
from pathlib import Path

log = logging.getLogger(__name__)

DIRECTORY = Path("/var/lib/cni/results")  # libcni's default, which containerd does not change
_MAX_FILE_BYTES = 2**20  # libcni writes a few KiB


def remove_damaged(booted: float, directory: Path = DIRECTORY) -> list[str]:
    """Remove the files that were last written before `booted` (seconds since the epoch) and hold no JSON; their names.

    What cannot be read or removed is logged and stays, also the directory: containerd starts all the same.
    """
    removed = []
    for file in _files(directory):
        try:
            if _is_damaged(file, booted):
                file.unlink()
                removed.append(file.name)
        except OSError as error:
            log.warning("%s: cannot be looked at, or removed: %s", file, error.strerror)
    return removed


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        log.warning("%s: cannot be read: %s", directory, error.strerror)
        return []


def _is_damaged(file: Path, booted: float) -> bool:
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_mtime >= booted or found.st_size > _MAX_FILE_BYTES:
        return False
    try:
        json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return True
    return False
