"""Gives a volume to the pod's fsGroup (volumes.md 11); blocking.

Containers of other pods may change the volume meanwhile. So each entry is opened first, without following a symlink,
and what was opened is changed: nothing outside of the volume is ever changed.
"""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from services.volume.core.outcome import PluginEvent
from shared.files.tree_walk import walk_descriptors
from shared.time.clock import Clock

_GROUP_MODE = stat.S_ISGID | 0o770  # the bits of a directory that was given to a group

SLOW_AFTER = 30.0  # seconds
REPORT_SECONDS = 60.0  # between two reports of a slow change
_ADVICE = (
    "consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"
    "#configure-volume-permission-and-ownership-change-policy-for-pods"
)


class OwnershipChange:
    """Reports a change of a volume's ownership that takes long, as events of its pod."""

    def __init__(self, uid: str, volume: Path, clock: Clock, report: Callable[[PluginEvent], None]) -> None:
        self._uid, self._clock, self._report = uid, clock, report
        path = str(volume)
        self._shown = path[max(0, path.find(uid)) :] if uid else path
        self._files, self._next = 0, clock.monotonic() + SLOW_AFTER
        self._is_reported = False

    def visited(self) -> None:
        """Count one more file, directory or link that was changed, and report the change where it takes long."""
        self._files += 1
        if (now := self._clock.monotonic()) < self._next:
            return
        self._next = now + REPORT_SECONDS
        text = f"Setting volume ownership for {self._shown}"
        text += (
            f", processed {self._files} files." if self._is_reported else f" is taking longer than expected, {_ADVICE}"
        )
        self._is_reported = True
        self._report(PluginEvent("VolumePermissionChangeInProgress", text, uid=self._uid))


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
    return status.st_gid == group and stat.S_ISDIR(status.st_mode) and status.st_mode & _GROUP_MODE == _GROUP_MODE


def _give(path: str, mode: int, group: int, *, read_only: bool) -> None:
    """Change the group and the mode of what `path`, which leads to an open descriptor, names. `mode`: the mode before
    the change of the group, which removes setuid and setgid."""
    with contextlib.suppress(OSError):
        os.chown(path, -1, group)
        if stat.S_ISLNK(mode):
            return
        bits = 0o440 if read_only else 0o660
        if stat.S_ISDIR(mode):
            bits |= stat.S_ISGID | 0o110
        Path(path).chmod(stat.S_IMODE(mode) | bits)
