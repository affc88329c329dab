"""Reads the status of each file in a tree that containers write, of any depth, also while it grows.
Each call blocks. Each directory is opened by its name in its parent, so that no path is too long. Memory grows with the
depth of the tree, not with the number of its entries; open descriptors grow only with directories that have more than
PIECE_ENTRIES entries, and with the parts that are left for a later turn.
"""

import contextlib
import itertools
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from shared.model.frozen_copy import replace

PIECE_ENTRIES = 1024  # that are read at a time
MAX_ASIDE_PARTS = 32  # of the trees of one pod that are left for a later turn
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INNER = _DIRECTORY | os.O_NOFOLLOW


@dataclass
class Places:
    """Limits how many things several directories keep at the same time."""

    free: int

    def take(self) -> bool:
        """Take a place; return False where none is free."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True


class FileStatuses:
    """Iterates over the status of a directory, then of everything below it on its filesystem, in no particular order.
    Symlinks are not followed. Entries that cannot be read, are removed or are moved away meanwhile are left out.
    `aside`: the places for parts that are left for a later turn."""

    def __init__(self, root: Path, aside: Places) -> None:
        self._root, self._aside, self._begun = root, aside, False
        self._walks: deque[_Walk] = deque()  # each has a part of the tree; the first one continues

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> os.stat_result:
        if not self._begun:
            self._begun = True
            with contextlib.suppress(OSError):
                self._walks.append(_Walk.begin(self._root))
                return self._walks[0].status
        while self._walks:
            with contextlib.suppress(OSError):  # the root is gone
                if (status := self._walks[0].next()) is not None:
                    return status
            self._end_walk()
        raise StopIteration

    def turn(self) -> None:
        """Continue with the entries left in the highest directory above the current one that has some. So directories
        that grow as fast as they are read hide others only where there are more of them than places."""
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
    """Has a directory between the root and the current one. `names`: its entries that are left."""

    name: str
    inode: int
    names: Iterator[str]


class _Walk:
    """Walks through a part of the tree, with its current directory open."""

    def __init__(self, root: Path, status: os.stat_result, levels: list[_Level], directory: int) -> None:
        self._root, self.status, self._levels, self._directory = root, status, levels, directory

    @classmethod
    def begin(cls, root: Path) -> Self:
        """Open the root and return the walk. Raises OSError."""
        directory = os.open(root, _DIRECTORY)
        status = os.fstat(directory)
        return cls(root, status, [_Level("", status.st_ino, _names(directory))], directory)

    def split(self) -> "_Walk | None":
        """Return another walk, which gets the entries left in the highest directory above the current one that has
        some. None = no directory has any, or it is gone."""
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
        """Return the status of the next entry, and enter it if it is a directory; None = no entry is left."""
        while self._levels:
            name = next(self._levels[-1].names, None)
            if name is None:
                self._leave()
                continue
            try:
                status = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
            except OSError:
                continue
            if status.st_dev == self.status.st_dev:
                if stat.S_ISDIR(status.st_mode):
                    self._enter(name)
                return status
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
        """Go back to the parent directory. Where the current one was moved meanwhile, go back to the deepest directory
        that is still in its place. Raises OSError where the root is gone."""
        self._levels.pop()
        if self._levels:
            above = self._open("..", self._directory, self._levels[-1].inode)
            if above is None:
                above = self._deepest_in_place()
            os.close(self._directory)
            self._directory = above

    def _deepest_in_place(self) -> int:
        """Open the directories again from the root on, and return the deepest one in its place. If the root's path
        leads elsewhere now, nothing is left to read."""
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
        """Open a directory of the same filesystem; None = it is none, cannot be read or has another inode."""
        try:
            opened = os.open(name, _INNER, dir_fd=directory)
        except OSError:
            return None
        status = os.fstat(opened)
        if status.st_dev == self.status.st_dev and inode in (None, status.st_ino):
            return opened
        os.close(opened)
        return None


def _names(directory: int) -> Iterator[str]:
    """Return the names in the directory, which are read PIECE_ENTRIES at a time. A directory with fewer names needs no
    descriptor afterwards, and no more memory than its names that are left."""
    try:
        entries = os.scandir(directory)
        piece = [entry.name for entry in itertools.islice(entries, PIECE_ENTRIES)]
    except OSError:
        return iter(())
    if len(piece) == PIECE_ENTRIES:
        return itertools.chain(piece, _further_names(entries))
    entries.close()
    return iter(piece)


def _further_names(entries: "os._ScandirIterator[str]") -> Iterator[str]:
    with entries, contextlib.suppress(OSError):
        while piece := [entry.name for entry in itertools.islice(entries, PIECE_ENTRIES)]:
            yield from piece
