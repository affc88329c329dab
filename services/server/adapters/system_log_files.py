"""Opens files and directories of the node's log directory for `/logs/`.

A link is followed only where it ends below the log directory: a pod that may write there could otherwise show any file
of the node. A FIFO, device or socket is never opened.
"""

import errno
import os
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

SYSTEM_LOGS = Path("/var/log")
MAX_ENTRIES = 10_000  # of one directory; the others are left out
_PASS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass
class OpenedLog:
    """An open file or directory, with the state it had when it was opened; `close` ends it."""

    descriptor: int
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.status.st_mode)

    def entries(self) -> list[tuple[str, bool]]:
        """Return names and whether each is a directory, links aside; at most MAX_ENTRIES. Raises OSError."""
        with os.scandir(self.descriptor) as found:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(found, MAX_ENTRIES)]

    def read(self, start: int, count: int) -> bytes:
        """Return at most `count` bytes from `start`. Raises OSError."""
        return os.pread(self.descriptor, count, start)

    def close(self) -> None:
        """Close the file or directory."""
        os.close(self.descriptor)


def open_below(root: Path, path: str) -> OpenedLog:
    """Open `path`, which begins with /, below `root`. Raises OSError; FileNotFoundError also for what may not be
    opened."""
    try:
        top = os.path.realpath(root)
        target = os.path.realpath(f"{top}/{path}", strict=True)
        parts = Path(target).relative_to(top).parts
    except ValueError as error:  # the path has a NUL character, is no text, or follows a link out of the directory
        raise _not_found(path) from error
    except NotADirectoryError as error:
        raise _not_found(path) from error
    passed = os.open(top, _PASS)
    try:
        for part in parts:
            inner = os.open(part, _PASS, dir_fd=passed)
            os.close(passed)
            passed = inner
        mode = os.fstat(passed).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise _not_found(path)
        opened = os.open(f"/proc/self/fd/{passed}", _READ)
    finally:
        os.close(passed)
    return OpenedLog(opened, os.fstat(opened))


def _not_found(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
