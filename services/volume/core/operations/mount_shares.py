"""Decides how many calls on paths below one mount may be under way at once; pure, from the text of the path alone.

A file system whose server does not respond blocks each call on it, so its calls must not occupy all threads.
"""

from collections.abc import Iterable
from posixpath import normpath

from msgspec import Struct

from shared.host.mountinfo import MountPoint

MAX_CALLS_PER_MOUNT = 2
MAX_CALLS_PER_LOCAL_MOUNT = 16  # more than 2, because a link on it that leads to a file system that hangs counts here
_LOCAL = frozenset({
    "bcachefs", "btrfs", "cgroup", "cgroup2", "devtmpfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hugetlbfs",
    "iso9660", "jfs", "ntfs3", "overlay", "proc", "ramfs", "squashfs", "sysfs", "tmpfs", "udf", "vfat", "xfs", "zfs",
})  # fmt: skip


class Share(Struct, frozen=True):
    """A mount point, and how many calls may be under way below it."""

    mount: str
    places: int


class MountShares:
    """The shares of the mounts of one table. The root always has the share of a local mount: most paths are below
    it."""

    def __init__(self, mounts: Iterable[MountPoint] = ()) -> None:
        self._filesystems = {mount.path: mount.filesystem for mount in mounts}  # the newest where several are stacked
        self._longest = max(map(len, self._filesystems), default=0)

    def share_of(self, path: str) -> Share:
        """Return the share of the deepest mount point above the path, or for `<server>:<path>` that of the server. The
        cost is bounded by the length of the longest mount point."""
        if not path.startswith("/") and ":/" in path:
            return Share(path.partition(":/")[0], MAX_CALLS_PER_MOUNT)
        point = ("/" + normpath(path).lstrip("/"))[: self._longest + 1]
        while point != "/" and point not in self._filesystems:
            point = point.rpartition("/")[0] or "/"
        local = point == "/" or self._filesystems[point] in _LOCAL
        return Share(point, MAX_CALLS_PER_LOCAL_MOUNT if local else MAX_CALLS_PER_MOUNT)
