"""Reads the manifest files of the static pod path; blocking. It decides nothing."""

import errno
import fcntl
import logging
import os
import signal
import stat
from pathlib import Path

from services.sources.core.file_source import ManifestFile
from services.sources.core.yaml_document import MAX_BYTES

log = logging.getLogger(__name__)


class ManifestFiles:
    """Reads the static pod path, which is a directory of manifests (not recursive) or one manifest."""

    def __init__(self, path: str) -> None:
        self._path = Path(os.path.normpath(path))
        self._ignored: set[str] = set()  # logged once each

    def look(self) -> dict[str, ManifestFile]:
        """Return all manifests by absolute path; none when the path does not exist. Symlinks are followed; names
        starting with a dot, subdirectories and special files are ignored. Raises OSError when the path cannot be
        listed."""
        try:
            if not self._path.is_dir():
                file = self._read(self._path)
                return {} if file is None else {file.path: file}
            entries = list(self._path.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        self._ignored &= {entry.name for entry in entries}
        names = sorted(entry.name for entry in entries if self._counts(entry))
        files = (self._read(self._path / name) for name in names)
        return {file.path: file for file in files if file is not None}

    def _counts(self, entry: Path) -> bool:
        if entry.name.startswith("."):
            return False
        try:
            entry.name.encode()
        except UnicodeEncodeError:  # such a name cannot travel in messages
            self._log_ignored(entry, "not named in UTF-8")
            return False
        return True

    def _read(self, path: Path) -> ManifestFile | None:
        try:
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):
                self._log_ignored(path, "a directory" if stat.S_ISDIR(mode) else "no regular file or directory")
                return None
            content, being_written = _read_settled(path)
        except FileNotFoundError:  # gone since it was listed, or a symlink to nothing
            return None
        except OSError as error:
            return ManifestFile(path=str(path), content=None, unreadable=f"cannot be read: {error.strerror}")
        except ValueError:  # what no system call takes
            return ManifestFile(path=str(path), content=None, unreadable="cannot be read: its path holds a NUL byte")
        return ManifestFile(path=str(path), content=content, being_written=being_written)

    def _log_ignored(self, path: Path, what: str) -> None:
        if path.name not in self._ignored:
            self._ignored.add(path.name)
            log.warning("%s: ignored in the static pod path: it is %s", ascii(str(path))[1:-1], what)


def _read_settled(path: Path) -> tuple[bytes, bool]:
    """Return the content (one byte more than the limit at most), and whether some process has the file open for
    writing.

    A read lease is granted only while no process has the file open for writing, and makes a writer wait until it is
    released, so content that is read under it is complete. Files on file systems without leases are read without one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        being_written = False
        try:
            # A writer that opens the file meanwhile causes a signal; the default, SIGIO, would end the process.
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            being_written = error.errno == errno.EAGAIN
        return file.read(MAX_BYTES + 1), being_written
