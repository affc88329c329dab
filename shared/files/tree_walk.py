"""Walks directory trees that containers have filled, a piece of a directory at a time; blocking.

Memory grows with the depth of a tree, not with the number of its entries. A directory with less than a piece is closed
before those in it are opened.
"""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

PIECE_ENTRIES = 1024  # that are read at a time
_ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def walk_bottom_up(root: Path, *, skip_unreadable: bool = False) -> Iterator["os.DirEntry[str]"]:
    """Every entry below a directory, those in a directory before itself; symlinks are not followed. An entry may be
    removed once it was returned. Raises OSError for a directory that cannot be listed, unless those are skipped."""
    stack: list[tuple[os.DirEntry[str] | None, Iterator[os.DirEntry[str]]]] = [(None, _entries(root, skip_unreadable))]
    while stack:
        directory, entries = stack[-1]
        entry = next(entries, None)
        if entry is not None and entry.is_dir(follow_symlinks=False):
            stack.append((entry, _entries(entry.path, skip_unreadable)))
        elif entry is not None:
            yield entry
        else:
            stack.pop()
            if directory is not None:
                yield directory


def walk_descriptors(root: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Every entry below a directory, those in a directory before itself, and the directory last: an open descriptor
    (O_PATH or of a directory), valid until the next one, and its status from before anything below it was returned.

    The walk never leaves the tree: no name is resolved twice, no symlink is followed, and the way up ends where a
    directory was moved meanwhile. Raises OSError for that, and for a directory that cannot be listed."""
    here = os.open(root, _DIRECTORY)
    stack = [(os.fstat(here), _names(here))]
    try:
        while True:
            status, names = stack[-1]
            name = next(names, None)
            if name is None:
                yield here, status
                stack.pop()
                if not stack:
                    return
                here = _opened_above(here, stack[-1][0])
                continue
            with contextlib.suppress(FileNotFoundError):  # an entry that has gone meanwhile
                entry = os.open(name, _ENTRY, dir_fd=here)
                try:
                    status = os.fstat(entry)
                    if not stat.S_ISDIR(status.st_mode):
                        yield entry, status
                        continue
                    below = os.open(".", _DIRECTORY, dir_fd=entry)
                finally:
                    os.close(entry)
                os.close(here)
                here = below
                stack.append((status, _names(here)))
    finally:
        os.close(here)


def _opened_above(here: int, above: os.stat_result) -> int:
    """Replace the descriptor of a directory by one of the directory that it was reached from."""
    parent = os.open("..", _DIRECTORY, dir_fd=here)
    found = os.fstat(parent)
    if (found.st_dev, found.st_ino) != (above.st_dev, above.st_ino):
        os.close(parent)
        raise OSError(errno.EXDEV, "a directory was moved while its tree was walked")
    os.close(here)
    return parent


def _names(directory: int) -> Iterator[str]:
    """Yield the names in an open directory, whose reading ends before the names of its last piece are yielded."""
    with os.scandir(directory) as found:
        while piece := [entry.name for entry in itertools.islice(found, PIECE_ENTRIES)]:
            if len(piece) < PIECE_ENTRIES:
                found.close()
            yield from piece


def _entries(directory: Path | str, skip_unreadable: bool) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as found:
            while piece := list(itertools.islice(found, PIECE_ENTRIES)):
                if len(piece) < PIECE_ENTRIES:
                    found.close()
                yield from piece
    except OSError:
        if not skip_unreadable:
            raise
