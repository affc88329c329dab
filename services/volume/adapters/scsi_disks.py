"""Finds SCSI disks and the multipath maps above them in /sys, and removes them; blocking. Methods raise OSError."""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from services.volume.adapters.programs import run
from services.volume.core.specs.scsi_disks import DeviceMap, multipath_above
from shared.process.crash import crash_point

_LOOK_EVERY_SECONDS = 0.2


class ScsiDisks:
    """The disks of the machine whose /sys and /dev are below `root`."""

    def __init__(self, root: Path) -> None:
        self.sys, self.dev = root / "sys", root / "dev"

    def maps(self) -> list[DeviceMap]:
        """Return every device of device mapper."""
        found = []
        for block in sorted((self.sys / "block").glob("dm-*")):
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                paths = frozenset(path.name for path in (block / "slaves").iterdir())
                found.append(DeviceMap(block.name, read(block / "dm" / "name"), read(block / "dm" / "uuid"), paths))
        return found

    def links(self, folder: str) -> dict[str, str]:
        """Return the links in a directory of /dev/disk, with the names of the devices that they lead to."""
        found = sorted((self.dev / "disk" / folder).glob("*"))
        return {link.name: link.readlink().name for link in found if link.is_symlink()}

    def has_map(self, disks: Sequence[str]) -> bool:
        """Return whether there is a multipath map above the disks."""
        return multipath_above(disks, self.maps()) is not None

    def scan_all(self) -> None:
        """Let every host bus adapter look for disks."""
        for host in sorted((self.sys / "class" / "scsi_host").glob("host*")):
            with contextlib.suppress(OSError):  # one that is being removed holds up no other
                write(host / "scan", "- - -")

    def best(self, disks: Sequence[str], seconds: float) -> str:
        """Return the path of the multipath map above the disks, which is awaited for so long, else of the first
        disk."""
        wait_until(lambda: self.has_map(disks), seconds)
        found = multipath_above(disks, self.maps())
        return os.path.realpath(self.dev / (disks[0] if found is None else found.name))

    def is_used(self, name: str) -> bool:
        """Return whether a file system, a program or a device above it has the device for itself, or a pod has it as a
        block device, which is a loop device on it."""
        try:
            device = os.open(self.dev / name, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
            number = os.fstat(device).st_rdev
            os.close(device)
        except OSError as error:
            return error.errno == errno.EBUSY
        return any(number == _number(read(path)) for path in Path("/sys/block").glob("loop*/loop/backing_file"))

    def is_disk_used(self, disk: str) -> bool:
        """Return whether the disk is in use, by the multipath map above it or without one."""
        found = multipath_above([disk], self.maps())
        return self.is_used(disk if found is None else found.name)

    def remove(self, disks: Sequence[str]) -> None:
        """Write what is not on the disks yet, then remove the multipath map above them and the disks. A disk in use
        stays, and is an error."""
        found = multipath_above(disks, self.maps())
        paths = sorted({*disks, *(found.paths if found is not None else ())} - {found.name if found else ""})
        for name in paths if found is None else [found.name]:
            if self.is_used(name):
                text = f"the device {self.dev / name} is in use when it was no longer expected to be in use"
                raise OSError(errno.EBUSY, text)
            if (self.dev / name).exists():
                _must("blockdev", "--flushbufs", str(self.dev / name))
        if found is not None:
            _must("multipath", "-f", found.mapped or found.name)
        crash_point("volume.disk.unmapped")
        for path in paths:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                write(self.sys / "block" / path / "device" / "delete", "1")
        crash_point("volume.disk.removed")


def _number(path: str) -> int:
    """Return the number of a device, -1 = the path is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return -1
    return found.st_rdev if stat.S_ISBLK(found.st_mode) else -1


def _must(*command: str) -> None:
    done = run(*command)
    if done.code != 0:
        raise OSError(errno.EIO, f"{' '.join(command)} failed: exit status {done.code}: {done.output}")


def read(path: Path) -> str:
    """Return the text of an attribute, "" = there is none."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def write(path: Path, text: str) -> None:
    """Write to an attribute that exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; return whether it did within that time."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= ends:
            return False
        time.sleep(_LOOK_EVERY_SECONDS)
    return True
