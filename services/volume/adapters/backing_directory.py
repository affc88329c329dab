"""Sets up and tears down emptyDir volumes (volumes.md 13.1); blocking. Every step finds its own work done."""

import contextlib
import errno
import os
from pathlib import Path

from services.volume.adapters.mounts import mount_table, mount_tmpfs, unmount
from services.volume.adapters.ownership import give_to_group
from services.volume.adapters.pod_directories import PodDirectories, make_directory
from services.volume.core.mountinfo import below, containing
from services.volume.core.volume_spec import MEMORY, EmptyDir
from shared.tree_removal import Removed, remove_tree

_MARKER = "ready"


class EmptyDirs:
    """The emptyDirs of all pods. Methods raise OSError."""

    def __init__(self, directories: PodDirectories) -> None:
        self._directories = directories

    def set_up(self, uid: str, volume: str, source: EmptyDir) -> str:
        """The host path."""
        self._directories.make(uid)
        path = self._directories.empty_dir(uid, volume)
        set_up_at(path, self._directories.empty_dir_marker(uid, volume), source)
        return str(path)

    def tear_down(self, uid: str, volume: str, removed: Removed | None = None) -> None:
        """What is absent is done. `removed` counts the entries."""
        tear_down_at(self._directories.empty_dir(uid, volume), self._directories.empty_dir_marker(uid, volume), removed)


def set_up_at(path: Path, marker: Path, source: EmptyDir) -> None:
    """Directory, mount, ownership, marker, in this order. What is mounted there already is used. Raises OSError."""
    if is_ready(marker):
        if source.medium == MEMORY and os.path.ismount(path):
            return
        if source.medium == "" and path.is_dir():
            return
        # Somebody removed it, or the machine was restarted and the tmpfs is gone.
        (marker / _MARKER).unlink(missing_ok=True)
    make_directory(path.parent, 0o755)
    if not os.path.ismount(path):
        make_directory(path, 0o777)
        if source.medium == MEMORY:
            mount_tmpfs(path, size=source.size)
    if source.fs_group is not None:
        with contextlib.suppress(OSError):  # so does the kubelet
            give_to_group(path, source.fs_group)
    make_directory(marker.parent, 0o750)
    make_directory(marker, 0o750)
    (marker / _MARKER).touch()


def is_ready(marker: Path) -> bool:
    """It has been set up, and its teardown has not begun."""
    return (marker / _MARKER).exists()


def tear_down_at(path: Path, marker: Path, removed: Removed | None = None) -> None:
    """Marker, mount, content, in this order; what is absent is done. `removed` counts the entries. Raises OSError."""
    remove_tree(marker)
    if not path.is_dir():
        return
    table = mount_table()
    for point in below(table, str(path)):
        if point != str(path):
            raise OSError(errno.EBUSY, f"cannot delete directory {point}: it is a mount point")
    mount = containing(table, str(path))
    if mount is not None and mount.path == str(path):
        if mount.filesystem not in ("tmpfs", "hugetlbfs"):
            raise OSError(errno.EBUSY, f"cannot delete directory {path}: it is a mount point")
        unmount(path)
    remove_tree(path, removed)
