"""Gives a block device to a pod: a link below `pods/<uid>/volumeDevices`, a bind mount for each pod in the global map
directory, and a loop device on that, which keeps the device from being removed (volumes.md 5.8); blocking.

The link is made first and removed last, by `remove_link`, because a restarted process finds the rest by it.
"""

import contextlib
import errno
import os
from pathlib import Path

from services.volume.adapters.mounts import bind, is_mount_point, unmount
from services.volume.adapters.programs import run
from shared.pods.directory import make_directory
from shared.process.crash import crash_point

_MODE = 0o750
NEW_LINK = ".new-"  # prefix of a link before its rename; no volume's name begins with it


def map_device(device: str, global_map: Path, uid: str, link: Path) -> None:
    """Map the device for a pod; a step that is repeated after a kill finds its own work done. Raises OSError."""
    make_link(link, device)
    crash_point("volume.block.linked")
    make_directory(global_map, _MODE)
    bound = global_map / uid
    if not is_mount_point(bound):
        os.close(os.open(bound, os.O_CREAT | os.O_CLOEXEC, _MODE))
        source = os.open(device, os.O_PATH | os.O_CLOEXEC)
        try:
            bind(source, bound)
        finally:
            os.close(source)
    crash_point("volume.block.bound")
    if not _loops_on(bound):
        locked = run("losetup", "-f", str(bound))
        if locked.code != 0:
            raise OSError(errno.EIO, f"losetup -f {bound} failed: exit status {locked.code}: {locked.output}")
    crash_point("volume.block.locked")


def make_link(link: Path, device: str) -> None:
    """Let the link of the pod show this path, and replace at once a link that shows another one. Raises OSError."""
    make_directory(link.parent, _MODE)
    if link.is_symlink() and str(link.readlink()) == device:
        return
    temporary = link.with_name(f"{NEW_LINK}{link.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(device)
    temporary.rename(link)


def remove_link(link: Path) -> None:
    """Remove the link of the pod, and with the last link its directory; an absent link is no error. Raises OSError."""
    link.with_name(f"{NEW_LINK}{link.name}").unlink(missing_ok=True)
    link.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        link.parent.rmdir()


def unmap_device(global_map: Path, uid: str) -> None:
    """Undo `map_device` except for the link; what is absent is no error. Raises OSError."""
    bound = global_map / uid
    for loop in _loops_on(bound):
        freed = run("losetup", "-d", loop)
        if freed.code != 0 and _loops_on(bound):
            raise OSError(errno.EBUSY, f"losetup -d {loop} failed: exit status {freed.code}: {freed.output}")
    crash_point("volume.block.unlocked")
    if os.path.lexists(bound):
        unmount(bound)
        bound.unlink(missing_ok=True)
    crash_point("volume.block.unbound")


def remove_map(global_map: Path) -> None:
    """Remove the global map directory of a device. Raises OSError with the kubelet's text while a pod has the
    device."""
    if not global_map.is_dir():
        return
    if users := sorted(entry.name for entry in global_map.iterdir()):
        text = f'the device "{global_map}" is still referenced from other Pods [{" ".join(users)}]'
        raise OSError(errno.EBUSY, text)
    global_map.rmdir()


def _loops_on(bound: Path) -> list[str]:
    """Return the loop devices whose backing file this is."""
    devices = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            name = backing.read_text(errors="surrogateescape").rstrip("\n").removesuffix(" (deleted)")
        except OSError:
            continue  # it was detached meanwhile
        if name == str(bound):
            devices.append(f"/dev/{backing.parent.parent.name}")
    return devices
