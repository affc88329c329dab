"""Reads the text of /proc/self/mountinfo (proc_pid_mountinfo(5)); pure.

The kernel escapes spaces, tabs, newlines and backslashes only. Every other byte may be in a path: text is decoded with
`surrogateescape`, and only a newline ends a line, not what else Python takes for the end of one.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

_OCTAL = re.compile(r"\\([0-7]{3})")
_TO_ESCAPE = re.compile(r"[ \t\n\\]")


class MountPoint(Struct, frozen=True):
    """One mount. `shared`: events of mounts propagate to and from its peers; `device`: `<major>:<minor>`; `root`: the
    path inside the file system that is mounted; `options`: of this mount, such as `ro`; `source`: of its file
    system; `super_options`: of its file system."""

    path: str
    filesystem: str
    shared: bool
    device: str = ""
    root: str = ""
    options: frozenset[str] = frozenset()
    source: str = ""
    super_options: frozenset[str] = frozenset()


def parse(text: str, path: str = "") -> tuple[MountPoint, ...]:
    """Return all mounts, or those at or under a path, in their order; lines of another format are left out."""
    mounts = []
    # Reading the fields of each line costs milliseconds for a table of many pods.
    named = " " + _TO_ESCAPE.sub(lambda match: f"\\{ord(match[0]):03o}", path)
    for line in (line for line in text.split("\n") if named in line):
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 6:
            continue
        of_filesystem = after.split(" ")
        mount = MountPoint(
            path=_unescaped(fields[4]),
            filesystem=of_filesystem[0],
            shared=any(option.startswith("shared:") for option in fields[6:]),
            device=fields[2],
            root=_unescaped(fields[3]),
            options=frozenset(fields[5].split(",")),
            source=_unescaped(of_filesystem[1]) if len(of_filesystem) > 1 else "",
            super_options=frozenset(of_filesystem[2].split(",") if len(of_filesystem) > 2 else ()),
        )
        if not path or below([mount], path):
            mounts.append(mount)
    return tuple(mounts)


def references(mounts: Iterable[MountPoint], path: str) -> list[str]:
    """Return the other mount points that show the same directory of the same file system as the mount at the path."""
    listed = list(mounts)
    here = {(mount.device, mount.root) for mount in listed if mount.path == path}
    return sorted(mount.path for mount in listed if mount.path != path and (mount.device, mount.root) in here)


def _unescaped(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


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
