"""Formats block devices that are empty, and checks, mounts and grows their file systems (volumes.md 18); blocking."""

import errno
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from services.volume.adapters.mounts import is_mount_point
from services.volume.adapters.programs import locked, run, run_with_helpers
from services.volume.core.operations.file_systems import (
    grow_command,
    has_uncorrected_errors,
    make_command,
    type_on_device,
    why_not_mounted,
)
from shared.process.crash import crash_point

DEFAULT_TYPE = "ext4"
_LONG_TIMEOUT_SECONDS = 3600.0  # for a check or a new file system of a large device


class FilesystemMismatchError(OSError):
    """A device cannot be mounted, and has a file system of another type than the requested one."""


def is_block_device(path: str) -> bool:
    """Return whether the path is a block device, or a link to one. Raises OSError where nothing has that path."""
    return stat.S_ISBLK(Path(path).stat().st_mode)


def format_and_mount(device: str, target: Path, filesystem: str, options: Iterable[str], *, read_only: bool) -> None:
    """Mount the file system of a device; where it has neither a file system nor partitions, make one of this type
    first. Data is never overwritten. Raises OSError."""
    _require_mounted(filesystem)
    listed = sorted({*options, *(("ro",) if read_only else ()), "defaults"})
    busy = f"device {device} is being looked at, formatted or mounted by another process"
    with locked(device, busy) as lock:  # a mkfs that a killed process began must end before the device is read again
        if is_mount_point(target):
            return
        found = _probe_type(device)
        crash_point("volume.device.probed")
        if not found:
            if read_only:
                text = f"cannot mount unformatted disk {device} as we are manipulating it in read-only mode"
                raise OSError(errno.EROFS, text)
            made = run(*make_command(filesystem, device), seconds=_LONG_TIMEOUT_SECONDS, keep_open=[lock])
            if made.code != 0:
                raise OSError(
                    errno.EIO, f"mkfs.{filesystem} of {device} failed: exit status {made.code}: {made.output}"
                )
            crash_point("volume.device.formatted")
        elif not read_only:
            _check(device, lock)
        mount_filesystem(device, target, filesystem, listed, found, keep_open=[lock])


def mount_filesystem(
    source: str, target: Path, filesystem: str, options: list[str], found: str = "", keep_open: Sequence[int] = ()
) -> None:
    """Run the program `mount`, which knows the options and helpers of every file system. `found`: the type of the file
    system on a device. The source and the target are never read as options. `keep_open`: as of `run`. Raises OSError
    with the kubelet's text."""
    _require_mounted(filesystem)
    arguments = ["-t", filesystem, *(["-o", ",".join(options)] if options else []), "--", source, str(target)]
    mounted = run_with_helpers("mount", *arguments, keep_open=keep_open)
    if mounted.code != 0:
        is_other = found not in ("", filesystem)
        differs = f" (the device has a file system of type {found})" if is_other else ""
        shown = " ".join(arguments)
        text = f"mount failed: exit status {mounted.code}{differs} Mounting command: mount Mounting arguments: {shown}"
        failure = FilesystemMismatchError if is_other else OSError
        raise failure(errno.EIO, f"{text} Output: {mounted.output}")
    crash_point("volume.device.mounted")


def grow(device: str, mounted_at: Path, filesystem: str) -> None:
    """Make a mounted file system as large as its device; it is no error if it already is. Raises OSError."""
    command = grow_command(filesystem, device, str(mounted_at))
    if command is None:
        raise OSError(errno.EOPNOTSUPP, f"resize of format {filesystem} is not supported for device {device}")
    done = run(*command, seconds=_LONG_TIMEOUT_SECONDS)
    if done.code != 0:
        raise OSError(
            errno.EIO, f"resize of device {device} failed: {command[0]}: exit status {done.code}: {done.output}"
        )


def _require_mounted(filesystem: str) -> None:
    if why := why_not_mounted(filesystem):
        raise OSError(errno.EINVAL, why)


def _probe_type(device: str) -> str:
    """Return the type of what is on the device, "" = nothing. Raises OSError where that is not certain."""
    probed = run("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)
    found = type_on_device(probed.code, probed.output)
    if found is None:
        raise OSError(
            errno.EIO, f"could not determine if disk {device} is formatted: blkid: {probed.code} {probed.output}"
        )
    return found


def _check(device: str, lock: int) -> None:
    try:
        checked = run("fsck", "-a", device, seconds=_LONG_TIMEOUT_SECONDS, keep_open=[lock])
    except FileNotFoundError:
        return  # the kubelet, too, mounts without a check where the program is missing
    if has_uncorrected_errors(checked.code):
        text = f"'fsck' found errors on device {device} but could not correct them: {checked.output}"
        raise OSError(errno.EIO, text)
