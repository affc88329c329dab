"""Finds where cgroups are on this machine: v1 hierarchies, the one of v2, or both (hybrid); which exist.

node.md 4.1. Reads only. Everything here blocks for microseconds to milliseconds.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from shared.host.mountinfo import parse

V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "blkio", "devices", "freezer", "systemd")
_MUST_EXIST = ("cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb")
_MUST_CONTROL = frozenset({"cpu", "cpuset", "memory", "hugetlb", "pids"})


class Hierarchies(Struct, frozen=True):
    """Where cgroups are mounted: one root per v1 controller, or the one v2 root.

    `beside`: on a hybrid host the v2 hierarchy, where the runtime makes a cgroup of its own accord.
    """

    unified: Path | None
    by_controller: dict[str, Path]
    beside: Path | None = None

    def roots(self) -> list[Path]:
        """Return every directory tree a cgroup has to exist in."""
        return [self.unified] if self.unified else list(dict.fromkeys(self.by_controller.values()))

    def places(self, name: str) -> list[Path]:
        """Return every directory the cgroup may have, also the one that only the runtime made."""
        return [root / name.strip("/") for root in [*self.roots(), *([self.beside] if self.beside else [])]]

    def has(self, controller: str) -> bool:
        """Return whether a cgroup can be given values of the controller."""
        if self.unified is None:
            return controller in self.by_controller
        return controller in controllers_of(self.unified)


def find_hierarchies(mountinfo: str | None = None) -> Hierarchies:
    """Read the mounts of this machine. A hybrid host (v1 controllers, v2 beside them) counts as v1. Of what is mounted
    several times the shortest path counts."""
    text = (
        Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape") if mountinfo is None else mountinfo
    )
    unified: Path | None = None
    controllers: dict[str, Path] = {}
    for mount in parse(text):
        mountpoint = Path(mount.path)
        if mount.filesystem == "cgroup2":
            unified = _shorter(unified, mountpoint)
        elif mount.filesystem == "cgroup":
            names = {option.removeprefix("name=") for option in mount.super_options}
            for name in names.intersection(V1_CONTROLLERS):
                controllers[name] = _shorter(controllers.get(name), mountpoint)
    if controllers:
        in_order = {name: controllers[name] for name in V1_CONTROLLERS if name in controllers}
        return Hierarchies(unified=None, by_controller=in_order, beside=unified)
    return Hierarchies(unified=unified, by_controller={})


def _shorter(one: Path | None, other: Path) -> Path:
    return other if one is None or len(str(other)) < len(str(one)) else one


def exists(hierarchies: Hierarchies, name: str) -> bool:
    """Return whether the cgroup is there in every tree it has to be in; on v2 with every controller that the top
    has."""
    relative = name.strip("/")
    if hierarchies.unified is None:
        roots = (hierarchies.by_controller.get(controller) for controller in _MUST_EXIST)
        return all((root / relative).is_dir() for root in roots if root is not None)
    path = hierarchies.unified / relative
    return path.is_dir() and controllers_of(path) >= (_MUST_CONTROL & controllers_of(hierarchies.unified))


def is_missing(hierarchies: Hierarchies, name: str) -> bool:
    """Return whether some tree that the cgroup has to be in certainly does not have it; what cannot be read is no
    proof, and a controller that is switched off is switched on again around what runs.
    """
    roots: Iterable[Path | None] = (hierarchies.by_controller.get(controller) for controller in _MUST_EXIST)
    if hierarchies.unified is not None:
        roots = (hierarchies.unified,)
    return any(root is not None and _is_absent(root / name.strip("/")) for root in roots)


def _is_absent(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def controllers_of(directory: Path) -> frozenset[str]:
    """Return the controllers that a cgroup of version 2 has; none where they cannot be read."""
    try:
        return frozenset((directory / "cgroup.controllers").read_text().split())
    except OSError:
        return frozenset()


def is_in_use(hierarchies: Hierarchies, name: str) -> bool:
    """Return whether the runtime has put something into the cgroup: a cgroup below it, or a process."""
    return any(_children(path) or processes_in(path) for path in hierarchies.places(name))


def find_pods(
    hierarchies: Hierarchies, parents: Iterable[str], uid_of: Callable[[str], str | None]
) -> dict[str, list[str]]:
    """Return the cgroups right below `parents`, in any tree, that `uid_of` their name is a pod's: UID -> names of
    cgroups.
    """
    found: dict[str, list[str]] = {}
    for parent in parents:
        directories = {child for place in hierarchies.places(parent) for child in _children(place)}
        for directory in sorted(directories):
            uid = uid_of(directory)
            if uid is not None:
                found.setdefault(uid, []).append(f"{parent}/{directory}")
    return found


def _children(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def processes_in(path: Path) -> list[int]:
    """Return the processes in the cgroup itself, not in those below it."""
    try:
        return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []
