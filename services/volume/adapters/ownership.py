"""Gives a volume to the pod's fsGroup (volumes.md 11); blocking.

Containers of other pods may change the volume meanwhile. So each entry is opened first, without following a symlink,
and what was opened is changed: nothing outside of the volume is ever changed.
"""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from services.volume.core.operations.fs_group import SlowChange, mode_for_group, was_given
from services.volume.core.operations.outcome import PluginEvent
from shared.files.tree_walk import walk_descriptors
from shared.time.clock import Clock


class OwnershipChange:
    """Reports a change of a volume's ownership that takes long, as events of its pod."""

    def __init__(self, uid: str, volume: Path, clock: Clock, report: Callable[[PluginEvent], None]) -> None:
        self._clock, self._report = clock, report
        self._change = SlowChange(uid, str(volume), clock.monotonic())

    def visited(self) -> None:
        """Count one more file, directory or link that was changed, and report the change where it takes long."""
        if (event := self._change.visit(self._clock.monotonic())) is not None:
            self._report(event)


def give_to_group(
    root: Path, group: int, *, read_only: bool = False, visited: Callable[[], None] = lambda: None
) -> None:
    """Give a tree to a group ID, children before their directory, the root last. Owners and setuid bits stay; symlinks
    are chowned and not followed. A file that cannot be changed is left as it is. `visited` is called for each entry and
    the root. Raises OSError when a directory cannot be listed or is moved meanwhile."""
    for entry, status in walk_descriptors(root):
        _give(f"/proc/self/fd/{entry}", status.st_mode, group, read_only=read_only)
        visited()


def belongs_to_group(root: Path, group: int) -> bool:
    """Return whether the root shows that the tree was given to the group (fsGroupChangePolicy OnRootMismatch)."""
    status = root.stat()
    return was_given(status.st_mode, status.st_gid, group)


def _give(path: str, mode: int, group: int, *, read_only: bool) -> None:
    """Change the group and the mode of what `path`, which leads to an open descriptor, names. `mode`: the mode before
    the change of the group, which removes setuid and setgid."""
    with contextlib.suppress(OSError):
        os.chown(path, -1, group)
        if stat.S_ISLNK(mode):
            return
        Path(path).chmod(mode_for_group(mode, read_only=read_only))
