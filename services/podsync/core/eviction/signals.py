"""Reads the value of each eviction signal from the usage stream, and which filesystems are the same (node.md 5.1,
5.7)."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from bus.messages.usage import FilesystemUsage, NodeUsage


class SignalObservation(Struct, frozen=True):
    """Has what was available of `capacity` (bytes or a count) at `at`, seconds of CLOCK_MONOTONIC."""

    available: int
    capacity: int
    at: float


class Layout(StrEnum):
    """The places of images and writable layers."""

    SINGLE = "single"  # on the filesystem of the root directory
    DEDICATED_IMAGES = "dedicated"  # both on a filesystem of their own
    SPLIT = "split"  # images on one of their own, writable layers on that of the root directory


def readings(usage: NodeUsage, huge_pages: int = 0) -> dict[str, SignalObservation]:
    """Return the reading of each signal whose figures are known. A signal without a reading meets no threshold.
    `huge_pages`: bytes of memory that is reserved for them, which no other use can have."""
    at, signals = usage.read_at, {}
    available, capacity = usage.cgroup.memory_available, usage.memory_capacity
    if available is not None and capacity is not None:
        left = max(available - huge_pages, 0)
        signals["memory.available"] = SignalObservation(left, capacity - (available - left), at)
    for container in usage.system_containers:
        cgroup = container.cgroup
        if container.name == "pods" and cgroup.memory_available is not None and cgroup.memory_working_set is not None:
            capacity = cgroup.memory_available + cgroup.memory_working_set
            signals["allocatableMemory.available"] = SignalObservation(cgroup.memory_available, capacity, at)
    for name, filesystem in (("nodefs", usage.nodefs), ("imagefs", usage.imagefs), ("containerfs", usage.containerfs)):
        signals |= _filesystem_readings(name, filesystem, at)
    if usage.pids_max is not None and usage.pids_current is not None:
        signals["pid.available"] = SignalObservation(usage.pids_max - usage.pids_current, usage.pids_max, at)
    return signals


def layout_of(usage: NodeUsage, *, separate_disks: bool = True) -> Layout | None:
    """Return where images and writable layers are; None = not known yet. Images on the filesystem of the root directory
    mean SINGLE, wherever the layers are (node.md 5.7). `separate_disks`: the feature gate KubeletSeparateDiskGC."""
    images, layers = usage.imagefs_device, usage.containerfs_device or usage.imagefs_device
    if not usage.nodefs_device or not images or usage.containerfs is None:
        return None
    if images == usage.nodefs_device:
        return Layout.SINGLE
    return Layout.SPLIT if separate_disks and layers != images else Layout.DEDICATED_IMAGES


def _filesystem_readings(name: str, usage: FilesystemUsage | None, at: float) -> Mapping[str, SignalObservation]:
    signals = {}
    if usage is not None and usage.available is not None and usage.capacity:
        signals[f"{name}.available"] = SignalObservation(usage.available, usage.capacity, at)
    if usage is not None and usage.inodes_free is not None and usage.inodes:  # some filesystems count none
        signals[f"{name}.inodesFree"] = SignalObservation(usage.inodes_free, usage.inodes, at)
    return signals
