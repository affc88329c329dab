"""Renames, packs and removes the files of a container's log, and reads their sizes (pods.md 6.10).
Decides nothing. The next rotation repeats what a kill interrupts: a file that was being packed is packed again.
"""

import contextlib
import gzip
import logging
import os
import shutil
import stat
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from services.podsync.core.log_rotation import (
    PACKED,
    UNFINISHED,
    LogLimits,
    before_rotation,
    rotated_name,
    rotated_of,
    unfinished_files,
)
from shared.process.crash import crash_point

log = logging.getLogger(__name__)

_BLOCK_BYTES = 1 << 18  # read at a time; other threads run between two blocks
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a container may have put anything there
_LEVEL = 6  # of gzip: twice as fast as the highest for nearly the size


def sizes(logs: Mapping[str, str]) -> dict[str, int | None]:
    """Return the bytes of each log; None = it is missing. Files that are not regular are left out."""
    found: dict[str, int | None] = {}
    for container, path in logs.items():
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            found[container] = None
        except OSError:
            continue
        else:
            if stat.S_ISREG(status.st_mode):
                found[container] = status.st_size
    return found


def _rotated(path: Path) -> list[str]:
    with os.scandir(path.parent) as entries:
        return rotated_of(path.name, [entry.name for entry in entries])


def remove_unfinished(path: Path) -> None:
    """Remove what an interrupted rotation left of this log. Raises OSError."""
    for name in unfinished_files(_rotated(path)):
        (path.parent / name).unlink(missing_ok=True)


def make_room(path: Path, limits: LogLimits) -> None:
    """Remove the oldest rotated files, then pack the others, for packing needs space. A file that cannot be packed
    stays as it is until the next rotation. Raises OSError."""
    files = before_rotation(_rotated(path), limits)
    for name in files.remove:
        (path.parent / name).unlink(missing_ok=True)
    crash_point("podsync.logs.removed")
    for name in files.pack:
        try:
            _pack(path.parent / name)
        except OSError as error:
            log.warning("the log %s is not packed: %s", path.parent / name, error)


def _pack(plain: Path) -> None:
    unfinished = plain.with_name(f"{plain.name}{UNFINISHED}")
    try:
        with open(plain, "rb", opener=lambda name, _: os.open(name, _OPEN)) as source:
            status = os.fstat(source.fileno())
            if not stat.S_ISREG(status.st_mode):
                return
            unfinished.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(unfinished, "wb", opener=lambda name, _: os.open(name, flags, 0o600)) as target:
                os.fchmod(target.fileno(), stat.S_IMODE(status.st_mode))
                with gzip.GzipFile("", "wb", _LEVEL, target, mtime=status.st_mtime) as packed:
                    shutil.copyfileobj(source, packed, _BLOCK_BYTES)
                    crash_point("podsync.logs.packing")
        packed_name = plain.with_name(f"{plain.name}{PACKED}")
        unfinished.rename(packed_name)
        crash_point("podsync.logs.packed")
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    try:
        plain.unlink()
    except FileNotFoundError:  # the container was removed meanwhile, and all its files with it
        packed_name.unlink(missing_ok=True)


def rename(path: Path, now: datetime) -> Path:
    """Give the log its rotated name and return it. Raises OSError."""
    rotated = path.with_name(rotated_name(path.name, _rotated(path), now))
    path.rename(rotated)
    return rotated


def rename_back(rotated: Path, path: Path) -> None:
    """Undo `rename`, unless the runtime opened a new file despite its error: that one stays. Raises OSError."""
    os.link(rotated, path, follow_symlinks=False)
    rotated.unlink()
