"""Decides whether a block device is empty, which programs make and grow its file system (volumes.md 18), and which
types of file systems are mounted for a pod."""

_MAKE = {"ext3": ("-F", "-m0"), "ext4": ("-F", "-m0"), "xfs": ("-f",)}
_NOTHING_FOUND = 2  # exit status of blkid
_UNCORRECTED = 4  # exit status of fsck
# Those that have their data from the source of the mount. A pod may name another type, such as proc, which shows the
# host itself, or one of FUSE, which lets mount run a program that the type names.
_MOUNTED = frozenset({
    "auto", "bcachefs", "btrfs", "ceph", "cifs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "gfs2", "hfsplus",
    "iso9660", "jfs", "lustre", "nfs", "nfs4", "nilfs2", "ntfs", "ntfs3", "ocfs2", "reiserfs", "smb3", "squashfs",
    "tmpfs", "udf", "vfat", "xfs", "zfs",
})  # fmt: skip


def why_not_mounted(filesystem: str) -> str:
    """Return why no file system of this type is mounted for a pod, "" = it is."""
    return "" if filesystem in _MOUNTED else f"no file system of type {filesystem!a} is mounted for a pod"


def type_on_device(code: int, output: str) -> str | None:
    """Return the type of what a device has, from the exit status and the output of `blkid -o export` about TYPE and
    PTTYPE: "" = nothing, so that it may be formatted; None = that is not certain."""
    if code == _NOTHING_FOUND:
        return ""
    values = dict(word.partition("=")[::2] for word in output.split())
    if code != 0 or not (values.get("TYPE") or values.get("PTTYPE")):
        return None
    return "unknown data, probably partitions" if "PTTYPE" in values else values["TYPE"]


def has_uncorrected_errors(code: int) -> bool:
    """Return whether `fsck -a` with this exit status left errors, so that the device is not mounted."""
    return code == _UNCORRECTED


def make_command(filesystem: str, device: str) -> tuple[str, ...]:
    """Return the program with its arguments that makes a file system on a device."""
    return (f"mkfs.{filesystem}", *_MAKE.get(filesystem, ()), device)


def grow_command(filesystem: str, device: str, mounted_at: str) -> tuple[str, ...] | None:
    """Return the program with its arguments that makes a mounted file system as large as its device; None = there is
    none for this type."""
    if filesystem in ("ext2", "ext3", "ext4"):
        return ("resize2fs", device)
    if filesystem == "xfs":
        return ("xfs_growfs", "-d", mounted_at)
    return ("btrfs", "filesystem", "resize", "max", mounted_at) if filesystem == "btrfs" else None
