"""Opens a container's log file: a regular file, reached from its pod's log directory without following a link.

A pod that may write to the node's log directory could otherwise put a link to any file of the node, or a FIFO, there.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from itertools import islice
from pathlib import Path

from msgspec import Struct

from services.server.core.logs.log_source import unpacked_rotated
from shared.model.frozen_copy import replace

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PASS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_NAMES = 1000  # files in a log's directory that are searched for rotated ones


class LogFile(Struct, frozen=True):
    """Where a log is: `path`, absolute, and the name of the pod's log directory in it. Without that name links are
    followed, because the log files of docker are links to docker's own directory."""

    path: str
    pod_directory: str = ""

    def open(self) -> FileIO:
        """Open the file for reading. Never blocks on a FIFO or device. Raises OSError, with the path in it."""
        try:
            descriptor = self._beneath() if self.pod_directory else os.open(self.path, _READ)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")
                return FileIO(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            reason = "symbolic links are not followed" if error.errno == errno.ELOOP else error.strerror
            raise OSError(error.errno, reason, self.path) from error

    def is_another(self, file: FileIO) -> bool:
        """Return whether the path leads to another file than this open one; False while it leads to none. Raises
        OSError.
        """
        try:
            there = Path(self.path).stat(follow_symlinks=not self.pod_directory)
        except FileNotFoundError:  # it was renamed, and the runtime has not made the new file yet
            return False
        ours = os.fstat(file.fileno())
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def open_next(self, file: FileIO) -> FileIO:
        """Open the file that continues this open one after it was replaced: the oldest file that was rotated later and
        is not yet compressed, otherwise the one at the path. Raises OSError."""
        # Opened before the rotated files are listed: a rotation in between then only adds to the list.
        newest = self.open()
        try:
            for path in self._rotated_after(file):
                with suppress(FileNotFoundError):  # it was compressed in this moment
                    following = replace(self, path=str(path)).open()
                    newest.close()
                    return following
        except BaseException:
            newest.close()
            raise
        return newest

    def _rotated_after(self, file: FileIO) -> Iterator[Path]:
        """Yield the rotated files that were written later than this one, the oldest first: podsync names them by
        time."""
        if not self.pod_directory:
            return
        ended = os.fstat(file.fileno())
        current = Path(self.path)
        with os.scandir(current.parent) as entries:
            names = [entry.name for entry in islice(entries, _MAX_NAMES)]
        for name in unpacked_rotated(current.name, names):
            path = current.parent / name
            with suppress(FileNotFoundError):
                there = path.stat(follow_symlinks=False)
                another = (there.st_dev, there.st_ino) != (ended.st_dev, ended.st_ino)
                if another and there.st_mtime_ns > ended.st_mtime_ns:
                    yield path

    def _beneath(self) -> int:
        parts = Path(self.path).parts
        if self.pod_directory not in parts[:-1] or ".." in parts:
            raise OSError(errno.EXDEV, "not in the pod's log directory")
        pod = len(parts) - 1 - parts[::-1].index(self.pod_directory)
        directory = os.open(Path(*parts[:pod]), _PASS)
        try:
            for part in parts[pod:-1]:
                inner = os.open(part, _PASS | os.O_NOFOLLOW, dir_fd=directory)
                os.close(directory)
                directory = inner
            return os.open(parts[-1], _READ | os.O_NOFOLLOW, dir_fd=directory)
        finally:
            os.close(directory)
