"""Makes and removes the directory or mount of an emptyDir, or of a volume of files (volumes.md 13.1); blocking.

Each step that is repeated after a kill finds its own work done.
"""

import contextlib
import errno
import os
from pathlib import Path

from services.volume.adapters.mounts import mount_huge_pages, mount_table, mount_tmpfs, unmount
from services.volume.adapters.ownership import give_to_group
from shared.files.tree_removal import RemovalProgress, remove_tree
from shared.host.boot_id import boot_id
from shared.host.mountinfo import below
from shared.pods.directory import make_directory

_MARKER = "ready"  # a file; for a volume of files on disk it contains the boot ID of the last set-up


def set_up_at(
    path: Path,
    marker: Path,
    *,
    tmpfs: bool,
    size: int = 0,
    page_size: int = 0,
    fs_group: int | None = None,
    mode: int | None = None,
) -> None:
    """Make the directory, the mount, the mode, the ownership and the marker, in this order; what is mounted there
    already is used. `size`: bytes of the tmpfs, 0 = the kernel's default. `page_size`: bytes of the huge pages of a
    hugetlbfs, 0 = it is none. `fs_group`: a group ID, whose permissions
    are added to the mode. `mode`: permission bits, None = 0777, or those of a new tmpfs. Raises OSError."""
    is_mount = tmpfs or page_size > 0
    if is_ready(marker):
        if os.path.ismount(path) if is_mount else path.is_dir():
            return
        # The directory was removed, or the machine was restarted and the mount is gone.
        (marker / _MARKER).unlink(missing_ok=True)
    make_directory(path.parent, 0o755)
    if not os.path.ismount(path):
        make_directory(path, 0o755 if is_mount else 0o777 if mode is None else mode)  # a mount has its own mode
        if page_size:
            mount_huge_pages(path, page_size=page_size)
        elif tmpfs:
            mount_tmpfs(path, size=size)
    if mode is not None:
        path.chmod(mode)
    if fs_group is not None:
        with contextlib.suppress(OSError):  # the kubelet ignores this error, too
            give_to_group(path, fs_group)
    mark_ready(marker)


def mark_ready(marker: Path) -> None:
    """Note that the volume has been set up. Raises OSError."""
    make_directory(marker.parent, 0o750)
    make_directory(marker, 0o750)
    os.close(os.open(marker / _MARKER, os.O_CREAT | os.O_CLOEXEC, 0o644))


def is_ready(marker: Path) -> bool:
    """Return whether the volume has been set up and its teardown has not begun."""
    return (marker / _MARKER).exists()


def mark_boot(marker: Path) -> None:
    """Note in the marker that a set-up has ended well in this boot of the machine. Raises OSError."""
    if not is_of_this_boot(marker):
        (marker / _MARKER).write_text(boot_id(), encoding="utf-8")


def is_of_this_boot(marker: Path) -> bool:
    """Return whether a set-up has ended well in this boot. A marker that a power cut has emptied, or that an earlier
    version made, is of another one. Raises OSError."""
    try:
        found = (marker / _MARKER).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False
    return bool(found) and found == boot_id()


def tear_down_at(path: Path, marker: Path, removed: RemovalProgress | None = None) -> None:
    """Remove the marker, the mount and the content, in this order; what is absent is no error. `removed` counts the
    entries. Raises OSError (EBUSY for a mount that is not ours) and RemovalPausedError."""
    remove_tree(marker)
    if not path.is_dir():
        return
    mounts = mount_table(path)
    for point in below(mounts, str(path)):
        if point != str(path):
            raise OSError(errno.EBUSY, f"cannot delete directory {point}: it is a mount point")
    if mounts:
        if mounts[-1].filesystem not in ("tmpfs", "hugetlbfs"):
            raise OSError(errno.EBUSY, f"cannot delete directory {path}: it is a mount point")
        unmount(path)
    remove_tree(path, removed)
