"""Removes directory trees that containers have filled, whatever they put there; blocking.

A directory is read a piece at a time and emptied while it is read, and directories are moved to the top of the tree
first: memory and open descriptors grow neither with the number of entries nor with the depth.
"""

import errno
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_REMEMBERED_NAMES = (
    4096  # of directories that were moved to the top; the names of further ones are found when the top is read again
)
_MAX_PASSES = 16  # over one directory; one that is not empty after them is being filled by another process


@dataclass
class RemovalProgress:
    """How many entries a removal has taken away so far, and whether it is to pause; another thread may read the one and
    set the other."""

    entries: int = 0
    pause: bool = False

    def ask_to_pause(self) -> None:
        """Have the removal end before its next entry, with RemovalPausedError."""
        self.pause = True


class RemovalPausedError(Exception):
    """It was asked to pause. Another call goes on."""


def remove_tree(path: Path, removed: RemovalProgress | None = None) -> None:
    """Remove a directory with all it holds; absent is fine. Never follows a symlink, never leaves the filesystem.

    `removed` counts the entries. Raises OSError, for a mount point inside with the kubelet's text, and
    RemovalPausedError where `removed` asks for that; what is left can be removed by calling again.
    """
    try:
        top = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        _Removal(top, path, removed or RemovalProgress()).empty_top()
    finally:
        os.close(top)
    path.rmdir()


class _MountPointError(Exception):
    """The directory is one."""


class _Removal:
    """One call. `_moved` are names at the top that are known; `_forgotten`: there are others."""

    def __init__(self, top: int, path: Path, removed: RemovalProgress) -> None:
        self._top, self._path, self._removed = top, path, removed
        self._prefix = f".removing-{secrets.token_hex(8)}-"
        self._number = 0
        self._moved: list[str] = []
        self._forgotten = False

    def empty_top(self) -> None:
        """Read the top until nothing is found there. A pass that a forgotten directory makes necessary has removed
        `MAX_REMEMBERED_NAMES` others, so the number of passes stays small beside that of the entries."""
        idle = 0
        while idle < _MAX_PASSES:
            self._forgotten = False
            before = self._removed.entries
            self._read(self._top, self._path)
            if self._removed.entries == before and not self._forgotten:
                return
            idle += not self._forgotten
        raise OSError(errno.ENOTEMPTY, "is filled while it is removed", str(self._path))

    def _read(self, directory: int, path: Path) -> None:
        """Unlink the files of a directory and move its subdirectories to the top; remove those at once if it is the
        top itself."""
        device = os.fstat(directory).st_dev
        with os.scandir(directory) as entries:
            for entry in entries:
                if self._removed.pause:
                    raise RemovalPausedError
                try:
                    self._take(entry, directory, device)
                except FileNotFoundError:
                    continue
                except _MountPointError as error:
                    text = f"cannot delete directory {path}/{entry.name}: it is a mount point"
                    raise OSError(errno.EBUSY, text) from error
                except OSError as error:
                    raise OSError(error.errno, error.strerror, f"{path}/{entry.name}") from error
                if directory == self._top:
                    self._remove_moved()

    def _take(self, entry: "os.DirEntry[str]", directory: int, device: int) -> None:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=directory)
            self._removed.entries += 1
        elif directory == self._top and entry.name.startswith(self._prefix):
            self._moved.append(entry.name)  # forgotten earlier, or removed meanwhile
        else:
            self._move(entry.name, directory, device)

    def _move(self, name: str, directory: int, device: int) -> None:
        """Move an entry to the top. A mount point cannot be moved, so that nothing below one is ever opened."""
        if os.stat(name, dir_fd=directory, follow_symlinks=False).st_dev != device:
            raise _MountPointError
        moved = f"{self._prefix}{self._number}"
        self._number += 1
        try:
            os.rename(name, moved, src_dir_fd=directory, dst_dir_fd=self._top)
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.EXDEV):
                raise _MountPointError from error
            raise
        if len(self._moved) < MAX_REMEMBERED_NAMES:
            self._moved.append(moved)
        else:
            self._forgotten = True

    def _remove_moved(self) -> None:
        while self._moved:
            name = self._moved.pop()
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=self._top)
            except FileNotFoundError:
                continue
            try:
                self._empty(inner, name)
            finally:
                os.close(inner)
            self._removed.entries += 1

    def _empty(self, inner: int, name: str) -> None:
        """Empty one moved directory and remove it; some filesystems leave entries out while others are removed."""
        for left in reversed(range(_MAX_PASSES)):
            self._read(inner, self._path / name)
            try:
                os.rmdir(name, dir_fd=self._top)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or not left:
                    raise
            else:
                return
