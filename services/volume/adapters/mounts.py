"""Mounts and unmounts by mount(2) and umount2(2), and reads the mount table; blocking."""

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from shared.host.mountinfo import MountPoint, containing, parse

_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SHARED = 1, 0x20, 0x1000, 0x4000, 0x100000
# The options that a bind mount has for itself; it also keeps those of its source. Other options are the file system's.
_BIND_OPTIONS = {
    "ro": _MS_RDONLY, "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 0x400, "nodiratime": 0x800, "relatime": 0x200000,
}  # fmt: skip
_UMOUNT_NOFOLLOW = 8

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_libc.umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]


def mount_table(path: Path | str = "") -> tuple[MountPoint, ...]:
    """Return every mount that this process sees, or only those at or under a path. Raises OSError."""
    return parse(Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape"), str(path))


def mount_tmpfs(path: Path, *, size: int) -> None:
    """Mount a tmpfs of at most `size` bytes (0 = the kernel's default), kept out of swap where the kernel supports it.

    Raises OSError: EPERM without CAP_SYS_ADMIN, ENOSPC when the mount table is full."""
    options = [f"size={size}"] if size > 0 else []
    try:
        _mount("tmpfs", path, "tmpfs", 0, ",".join([*options, "noswap"]))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _mount("tmpfs", path, "tmpfs", 0, ",".join(options))


def resize_tmpfs(path: Path, size: int, *, grow: bool) -> bool:
    """Give the tmpfs that is mounted at exactly this path `size` bytes, where it has less and is to grow, or has more
    and is not to; return whether it was changed. Its options stay. Raises OSError: EINVAL where there is no tmpfs, or
    one that the kernel cannot resize, ENOSPC where more is in use; then it stays as it is."""
    mount = next((mount for mount in reversed(mount_table(path)) if mount.path == str(path)), None)
    if mount is None or mount.filesystem != "tmpfs":
        raise OSError(errno.EINVAL, "no tmpfs is mounted here", str(path))
    found = os.statvfs(path)
    present = found.f_blocks * found.f_frsize
    if present == _in_pages(size) or (present < size) is not grow:
        return False
    _require_room(path, size)
    kept = ["noswap"] if "noswap" in mount.super_options else []  # the kernel takes no remount that would lose it
    flags = sum(flag for option, flag in _BIND_OPTIONS.items() if option in mount.options)
    try:
        _mount("", path, "", _MS_REMOUNT | flags, ",".join([f"size={size}", *kept]))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _require_room(path, size)  # it may have been written to meanwhile
        raise OSError(errno.EINVAL, f"the kernel cannot change its size to {size}", str(path)) from error
    return True


def _require_room(path: Path, size: int) -> None:
    """Raise OSError (ENOSPC) where the tmpfs has more than `size` bytes in use."""
    found = os.statvfs(path)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    if size < used:
        text = f"attempting to set the size ({size}) below current usage ({used})"
        raise OSError(errno.ENOSPC, text, str(path))


def _in_pages(size: int) -> int:
    """Return the bytes that a tmpfs of this size has: whole pages."""
    page = os.sysconf("SC_PAGE_SIZE")
    return -(-size // page) * page


def mount_huge_pages(path: Path, *, page_size: int) -> None:
    """Mount a hugetlbfs with pages of this many bytes. Raises OSError: EINVAL where the kernel has none of this
    size."""
    _mount("nodev", path, "hugetlbfs", 0, f"pagesize={page_size}")


def bind_to_itself(path: Path) -> None:
    """Bind-mount a directory onto itself, with the mounts below it. Raises OSError."""
    _mount(str(path), path, "", _MS_BIND | _MS_REC, "")


def is_mount_point(path: Path) -> bool:
    """Return whether something is mounted at exactly this path, also on a file. Raises OSError."""
    return any(mount.path == str(path) for mount in mount_table(path))


def bind_with_options(source: Path, target: Path, options: Iterable[str]) -> None:
    """Bind-mount a directory over the target where nothing is mounted yet, then give the mount these options; it also
    keeps the options of the source's mount. Raises OSError."""
    if not is_mount_point(target):
        _mount(str(source), target, "", _MS_BIND, "")
    wanted = set(options) & _BIND_OPTIONS.keys()
    mount = containing(mount_table(), str(target))
    has = mount.options if mount is not None else frozenset()
    if wanted - has:
        flags = sum(flag for option, flag in _BIND_OPTIONS.items() if option in wanted | has)
        _mount("", target, "", _MS_REMOUNT | _MS_BIND | flags, "")


def bind(source: int, target: Path) -> None:
    """Bind-mount what the descriptor `source` has opened (O_PATH is enough) over the target, without the mounts below
    it. Raises OSError."""
    _mount(f"/proc/self/fd/{source}", target, "", _MS_BIND, "")


def make_shared(path: Path) -> None:
    """Let mounts below a mount point propagate in both directions. Raises OSError."""
    _mount("", path, "", _MS_SHARED | _MS_REC, "")


def unmount(path: Path) -> bool:
    """Unmount the newest mount at the path, and return whether there was one. Raises OSError, EBUSY while it is in
    use."""
    if _libc.umount2(os.fsencode(path), _UMOUNT_NOFOLLOW) == 0:
        return True
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOENT):
        raise OSError(number, os.strerror(number), str(path))
    return False


def unmount_all(path: Path) -> None:
    """Unmount every mount at the path; a path without one is no error. Raises OSError, EBUSY while one is in use. A
    mount in use is not detached: it would leave the mount table, and the volume below it would then be removed under
    its user."""
    while unmount(path):
        pass


def _mount(source: str, target: Path, filesystem: str, flags: int, options: str) -> None:
    result = _libc.mount(
        os.fsencode(source) or None, os.fsencode(target), filesystem.encode() or None, flags, options.encode() or None
    )
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))
