"""Decides whether a block device is empty, and which programs make and grow its file system (volumes.md 18)."""

_MAKE = {"ext3": ("-F", "-m0"), "ext4": ("-F", "-m0"), "xfs": ("-f",)}
_NOTHING_FOUND = 2  # exit status of blkid
_UNCORRECTED = 4  # exit status of fsck


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
