"""The status of each file in a tree that containers have filled, however deep it is; blocking.

Each directory is opened by its name in the one above it, so that no path is too long to be counted. Memory grows with
the depth of the tree, not with the number of its entries; open descriptors grow only with directories that have more
than a piece of entries.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

PIECE = 1024  # entries
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INNER = _DIRECTORY | os.O_NOFOLLOW


def statuses(root: Path) -> Generator[os.stat_result, None, None]:
    """The status of a directory, then of everything below it on its filesystem, in no particular order. Symlinks are
    not followed. What cannot be read, is removed or is moved away meanwhile is left out."""
    try:
        walk = _Walk(root)
    except OSError:
        return
    try:
        yield walk.status
        with contextlib.suppress(OSError):  # the root is gone
            while (found := walk.next()) is not None:
                yield found
    finally:
        walk.close()


@dataclass
class _Level:
    """A directory between the root and the current one. `names`: its entries that are left."""

    name: str
    inode: int
    names: Iterator[str]


class _Walk:
    """Has the current directory open. Raises OSError where the root cannot be opened."""

    def __init__(self, root: Path) -> None:
        self._root, self._directory = root, os.open(root, _DIRECTORY)
        self.status = os.fstat(self._directory)
        self._levels = [_Level("", self.status.st_ino, _names(self._directory))]

    def next(self) -> os.stat_result | None:
        """The status of the next entry, which is entered if it is a directory; None = that was all."""
        while self._levels:
            name = next(self._levels[-1].names, None)
            if name is None:
                self._leave()
                continue
            try:
                found = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
            except OSError:
                continue
            if found.st_dev == self.status.st_dev:
                if stat.S_ISDIR(found.st_mode):
                    self._enter(name)
                return found
        return None

    def close(self) -> None:
        """Read no more."""
        self._levels.clear()
        os.close(self._directory)

    def _enter(self, name: str) -> None:
        if (inner := self._open(name, self._directory)) is not None:
            os.close(self._directory)
            self._directory = inner
            self._levels.append(_Level(name, os.fstat(inner).st_ino, _names(inner)))

    def _leave(self) -> None:
        """Return to the directory above. Where the current one was moved meanwhile, return to the deepest directory
        that is still in its place. Raises OSError where the root is gone."""
        self._levels.pop()
        if self._levels:
            above = self._open("..", self._directory, self._levels[-1].inode)
            if above is None:
                above = self._deepest_in_place()
            os.close(self._directory)
            self._directory = above

    def _deepest_in_place(self) -> int:
        """Open the directories again from the root on. If its path leads elsewhere by now, nothing is left to read."""
        directory = os.open(self._root, _DIRECTORY)
        if os.fstat(directory).st_ino != self._levels[0].inode:
            self._levels.clear()
        for number, level in enumerate(self._levels[1:], start=1):
            inner = self._open(level.name, directory, level.inode)
            if inner is None:
                del self._levels[number:]
                break
            os.close(directory)
            directory = inner
        return directory

    def _open(self, name: str, directory: int, inode: int | None = None) -> int | None:
        """Open a directory of the same filesystem; None = it is none, cannot be read or has not this inode."""
        try:
            opened = os.open(name, _INNER, dir_fd=directory)
        except OSError:
            return None
        found = os.fstat(opened)
        if found.st_dev == self.status.st_dev and inode in (None, found.st_ino):
            return opened
        os.close(opened)
        return None


def _names(directory: int) -> Iterator[str]:
    """Read a piece at a time; a directory with less than a piece needs no descriptor of its own afterwards."""
    try:
        with os.scandir(directory) as found:
            while piece := [entry.name for entry in itertools.islice(found, PIECE)]:
                if len(piece) < PIECE:
                    found.close()
                yield from piece
    except OSError:
        return
