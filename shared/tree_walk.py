"""Walks directory trees that containers have filled, a piece of a directory at a time; blocking.

Memory grows with the depth of a tree, not with the number of its entries. A directory with less than a piece is closed
before those in it are opened.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

PIECE = 1024  # entries


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


def _entries(directory: Path | str, skip_unreadable: bool) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as found:
            while piece := list(itertools.islice(found, PIECE)):
                if len(piece) < PIECE:
                    found.close()
                yield from piece
    except OSError:
        if not skip_unreadable:
            raise
