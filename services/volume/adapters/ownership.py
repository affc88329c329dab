"""Gives a volume to the pod's fsGroup (volumes.md 11); blocking."""

import contextlib
import os
import stat
from pathlib import Path

from shared.tree_walk import walk_bottom_up

_GIVEN = stat.S_ISGID | 0o770


def give_to_group(root: Path, group: int, *, read_only: bool = False) -> None:
    """Give a tree to a group ID, children before their directory, the root last. Owners stay; symlinks are chowned and
    not followed. A file that cannot be changed is left as it is. Raises OSError when a directory cannot be listed."""
    for entry in walk_bottom_up(root):
        _give(Path(entry.path), group, read_only=read_only)
    _give(root, group, read_only=read_only)


def belongs_to_group(root: Path, group: int) -> bool:
    """Return whether the root shows that the tree was given to the group (fsGroupChangePolicy OnRootMismatch)."""
    status = root.stat()
    return status.st_gid == group and stat.S_ISDIR(status.st_mode) and status.st_mode & _GIVEN == _GIVEN


def _give(path: Path, group: int, *, read_only: bool) -> None:
    with contextlib.suppress(OSError):
        os.chown(path, -1, group, follow_symlinks=False)
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return
        bits = 0o440 if read_only else 0o660
        if stat.S_ISDIR(mode):
            bits |= stat.S_ISGID | 0o110
        path.chmod(stat.S_IMODE(mode) | bits)
