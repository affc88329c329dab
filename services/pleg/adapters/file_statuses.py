"""Reads the status of each file in a tree that containers have filled, however deep it is or grows.

Each call blocks. Each directory is opened by its name in the one above it, so that no path is too long to be counted.
Memory grows with the depth of the tree, not with the number of its entries; open descriptors grow only with directories
that have more than a piece of entries, and with the parts that are left for later.
"""

import contextlib
import itertools
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

PIECE = 1024  # entries
MAX_ASIDE = 32  # parts of the trees of one pod that are left for a later turn
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INNER = _DIRECTORY | os.O_NOFOLLOW


@dataclass
class Places:
    """A limit of what may be kept at the same time, which several directories share."""

    free: int

    def take(self) -> bool:
        """Take a place; return False where none is free."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True


class FileStatuses:
    """Iterates over the status of a directory, then of everything below it on its filesystem, in no particular order.
    Symlinks are not followed. What cannot be read, is removed or is moved away meanwhile is left out. `aside`: for
    parts that are left for a later turn."""

    def __init__(self, root: Path, aside: Places) -> None:
        self._root, self._aside, self._begun = root, aside, False
        self._walks: deque[_Walk] = deque()  # the first one goes on; each has a part of the tree

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> os.stat_result:
        if not self._begun:
            self._begun = True
            with contextlib.suppress(OSError):
                self._walks.append(_Walk.begin(self._root))
                return self._walks[0].status
        while self._walks:
            try:
                found = self._walks[0].next()
            except OSError:  # the root is gone
                found = None
            if found is not None:
                return found
            self._end_walk()
        raise StopIteration

    def turn(self) -> None:
        """Continue elsewhere: with the entries left in a directory above the current one, the highest that has some. So
        a directory that grows as fast as it is read hides only what is beside more of them than there are places."""
        if self._walks:
            walk = self._walks.popleft()
            rest = walk.split() if self._aside.free > 0 else None
            self._walks.append(walk)
            if rest is not None and self._aside.take():
                self._walks.appendleft(rest)

    def close(self) -> None:
        """Read no more."""
        while self._walks:
            self._end_walk()

    def _end_walk(self) -> None:
        self._walks.popleft().close()
        if self._walks:  # the first walk has no place
            self._aside.free += 1


@dataclass(slots=True)
class _Level:
    """A directory between the root and the current one. `names`: its entries that are left."""

    name: str
    inode: int
    names: Iterator[str]


class _Walk:
    """A walk through a part of the tree, which has its current directory open."""

    def __init__(self, root: Path, status: os.stat_result, levels: list[_Level], directory: int) -> None:
        self._root, self.status, self._levels, self._directory = root, status, levels, directory

    @classmethod
    def begin(cls, root: Path) -> Self:
        """Open the root. Raises OSError."""
        directory = os.open(root, _DIRECTORY)
        status = os.fstat(directory)
        return cls(root, status, [_Level("", status.st_ino, _names(directory))], directory)

    def split(self) -> "_Walk | None":
        """Leave the entries of the highest directory above the current one that has some left to another walk, which is
        returned. None = there are none, or the directory has gone."""
        for number, level in enumerate(self._levels[:-1]):
            if (name := next(level.names, None)) is not None:
                above = [replace(each, names=iter(())) for each in self._levels[:number]]
                rest = _Walk(self._root, self.status, [*above, replace(level)], -1)
                rest._levels[-1].names = itertools.chain((name,), level.names)
                level.names = iter(())
                with contextlib.suppress(OSError):
                    rest._directory = rest._deepest_in_place()
                    return rest
                return None
        return None

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
    """Read a piece at a time. A directory with less than a piece needs no descriptor of its own afterwards, and no
    more memory than its names that are left."""
    try:
        found = os.scandir(directory)
        piece = [entry.name for entry in itertools.islice(found, PIECE)]
    except OSError:
        return iter(())
    if len(piece) == PIECE:
        return itertools.chain(piece, _further_names(found))
    found.close()
    return iter(piece)


def _further_names(found: "os._ScandirIterator[str]") -> Iterator[str]:
    with found, contextlib.suppress(OSError):
        while piece := [entry.name for entry in itertools.islice(found, PIECE)]:
            yield from piece
