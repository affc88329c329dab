"""Reads /proc/self/mountinfo (proc_pid_mountinfo(5)); pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class MountPoint:
    """One mount. `shared`: events of mounts propagate to and from its peers."""

    path: str
    filesystem: str
    shared: bool


def parse(text: str) -> tuple[MountPoint, ...]:
    """Return all mounts in the order of the table; lines of another format are left out."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 6:
            continue
        path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        shared = any(option.startswith("shared:") for option in fields[6:])
        mounts.append(MountPoint(path=path, filesystem=after.split(" ", 1)[0], shared=shared))
    return tuple(mounts)


def below(mounts: Iterable[MountPoint], path: str) -> list[str]:
    """Return the mount points at or under a path, deepest first."""
    found = [mount.path for mount in mounts if mount.path == path or mount.path.startswith(path.rstrip("/") + "/")]
    return sorted(found, key=lambda point: point.count("/"), reverse=True)


def containing(mounts: Iterable[MountPoint], path: str) -> MountPoint | None:
    """Return the mount that a path is on: the deepest mount point above it, the newest where several are stacked."""
    best: MountPoint | None = None
    for mount in mounts:
        if path == mount.path or path.startswith(mount.path.rstrip("/") + "/"):
            best = mount if best is None or len(mount.path) >= len(best.path) else best
    return best
