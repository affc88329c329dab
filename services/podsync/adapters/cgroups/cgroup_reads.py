"""Reads from the kernel the CPU and memory values of a pod's cgroup, the memory in use in it, and where one of its
containers is throttled (node.md 4.3).

Decides nothing. Blocks for microseconds: call it in a thread.
"""

import contextlib
import os
from pathlib import Path

from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.host.cgroup_layout import Hierarchies
from shared.host.cgroup_name import is_cgroup_of_container
from shared.podspec.resources import MAX_SHARES, MIN_SHARES

# The cgroup below a container's scope of systemd in which crun has its processes. Releases before 1.21 write limits
# only there, later ones also to the scope.
_OF_CRUN = "container"
NO_V1_LIMIT = 1 << 62  # bytes; v1 shows a limit in pages near 1 << 63 where there is none


def read_values(hierarchies: Hierarchies, name: str) -> CgroupValues:
    """Return the CPU and memory values of a cgroup; None for no memory limit, -1 for no CPU limit. Raises OSError,
    ValueError."""
    relative = name.strip("/")
    if hierarchies.unified is not None:
        directory = hierarchies.unified / relative
        quota, _, period = _text(directory / "cpu.max").partition(" ")
        memory = _text(directory / "memory.max")
        return CgroupValues(
            cpu_shares=_shares(int(_text(directory / "cpu.weight"))),
            cpu_quota=-1 if quota == "max" else int(quota),
            cpu_period=int(period),
            memory_limit=None if memory == "max" else int(memory),
            memory_min=_protection(directory / "memory.min"),
            memory_low=_protection(directory / "memory.low"),
        )
    cpu, limit = hierarchies.by_controller["cpu"] / relative, _v1_memory(hierarchies, relative, "limit")
    return CgroupValues(
        cpu_shares=int(_text(cpu / "cpu.shares")),
        cpu_quota=int(_text(cpu / "cpu.cfs_quota_us")),
        cpu_period=int(_text(cpu / "cpu.cfs_period_us")),
        memory_limit=None if limit >= NO_V1_LIMIT else limit,
    )


def read_memory_usage(hierarchies: Hierarchies, name: str, container_id: str = "") -> int | None:
    """Return the bytes in use in a cgroup, or in the one below it of this container. None = there is no such cgroup."""
    relative = name.strip("/")
    root = hierarchies.unified or hierarchies.by_controller["memory"]
    try:
        if container_id:
            relative = _of_container(root, relative, container_id)
        if hierarchies.unified is not None:
            return int(_text(root / relative / "memory.current"))
        return _v1_memory(hierarchies, relative, "usage")
    except (OSError, ValueError, StopIteration):
        return None


def read_memory_high(hierarchies: Hierarchies, name: str, container_id: str) -> set[str]:
    """Return memory.high of the cgroup of this container, below the pod's cgroup of this name, and of the one that crun
    has below it: bytes, or "max". The set is empty on v1, and where there is no such cgroup."""
    if (root := hierarchies.unified) is None:
        return set()
    try:
        own = root / _of_container(root, name.strip("/"), container_id)
    except (OSError, StopIteration):
        return set()
    found = set()
    for directory in (own, own / _OF_CRUN):
        with contextlib.suppress(OSError):
            found.add(_text(directory / "memory.high"))
    return found


def _of_container(root: Path, relative: str, container_id: str) -> str:
    """Return the path of the cgroup of a container below that of its pod. Raises OSError, StopIteration: there is
    none."""
    with os.scandir(root / relative) as entries:
        found = (entry.name for entry in entries if entry.is_dir() and is_cgroup_of_container(entry.name, container_id))
        return f"{relative}/{next(found)}"


def _v1_memory(hierarchies: Hierarchies, relative: str, what: str) -> int:
    return int(_text(hierarchies.by_controller["memory"] / relative / f"memory.{what}_in_bytes"))


def _protection(file: Path) -> int | None:
    """Return the protected bytes; None = all of the memory, or the kernel has no such file."""
    text = _text(file) if file.exists() else "max"
    return None if text == "max" else int(text)


def _shares(weight: int) -> int:
    """Return the smallest cpu.shares that the kernel's formula turns into this cpu.weight."""
    shares = MIN_SHARES + -(-(weight - 1) * 262142 // 9999)
    return min(max(shares, MIN_SHARES), MAX_SHARES)


def _text(file: Path) -> str:
    return file.read_text().strip()
