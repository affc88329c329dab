"""Finds loop devices, and keeps tests from attaching them at the same moment: all processes of the machine share them.

A device is detached once no process has it open. Two processes that attach a file at the same moment choose the same
device, and the one that is refused keeps it open for 0.2 s more. `losetup -a` opens every device for a moment.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONTROL = Path("/dev/loop-control")


@contextmanager
def exclusive_loop_devices() -> Iterator[None]:
    """Keep the other processes of tests from attaching a file during the block. First wait until their blocks have
    ended."""
    if not _CONTROL.exists():
        yield
        return
    with _CONTROL.open("rb", buffering=0) as control:
        fcntl.flock(control, fcntl.LOCK_EX)
        yield


def backing_files() -> dict[str, str]:
    """Return each loop device that has a file, with the path of the file. Opens no device."""
    found = {}
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found[f"/dev/{backing.parent.parent.name}"] = backing.read_text(errors="replace").rstrip("\n")
        except OSError:
            continue  # it was detached meanwhile
    return found


def devices_below(directory: Path | str) -> list[str]:
    """Return the loop devices whose file is below the directory."""
    return sorted(device for device, file in backing_files().items() if f"{directory}/" in file)


def is_unused(device: str) -> bool:
    """Return whether no file system and no program has the device for itself. After an unmount its file system may stay
    for a moment, for a container that starts has copies of all mounts until it has given them up."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
