"""Reads the host: memory, filesystems, processes, CPUs, as the kubelet's eviction signals define them (node.md 5.1).

What cannot be read is -1, never an error: a signal without an observation is ignored.
"""

import os
from pathlib import Path

from services.pleg.core.node_observation import MachineReading
from shared.host import meminfo


def read_machine(
    nodefs: str, imagefs: str, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> MachineReading:
    """One reading. `nodefs`: a path on the filesystem of the root directory; `imagefs`: of the images."""
    memory_capacity, memory_available = read_memory(proc, cgroups)
    nodefs_capacity, nodefs_available, inodes, inodes_free = read_filesystem(nodefs)
    imagefs_capacity, imagefs_available, _, _ = read_filesystem(imagefs)
    pids_max, pids_running = read_pids(proc)
    return MachineReading(
        memory_capacity=memory_capacity,
        memory_available=memory_available,
        nodefs_capacity=nodefs_capacity,
        nodefs_available=nodefs_available,
        nodefs_inodes=inodes,
        nodefs_inodes_free=inodes_free,
        imagefs_capacity=imagefs_capacity,
        imagefs_available=imagefs_available,
        pids_max=pids_max,
        pids_running=pids_running,
        cpus=os.sysconf("SC_NPROCESSORS_ONLN"),
    )


def read_memory(proc: Path, cgroups: Path) -> tuple[int, int]:
    """(MemTotal, MemTotal - working set of the root cgroup) in bytes.

    Working set = usage - inactive_file, not below 0; usage is memory.usage_in_bytes on cgroup v1, anon + file of
    memory.stat on v2. Without a readable memory cgroup it is the kernel's MemAvailable.
    """
    memory = meminfo(proc)
    total = memory.get("MemTotal", -1)
    if total < 0:
        return -1, -1
    v1, v2 = _numbers(cgroups / "memory" / "memory.stat"), _numbers(cgroups / "memory.stat")
    if "total_inactive_file" in v1 and (usage := _number(cgroups / "memory" / "memory.usage_in_bytes")) >= 0:
        working_set = max(0, usage - v1["total_inactive_file"])
    elif "inactive_file" in v2:
        working_set = max(0, v2.get("anon", 0) + v2.get("file", 0) - v2["inactive_file"])
    else:
        return total, memory.get("MemAvailable", -1)
    return total, max(0, total - working_set)


def read_filesystem(path: str) -> tuple[int, int, int, int]:
    """(bytes, bytes available to us, inodes, free inodes) of the filesystem at the path."""
    try:
        status = os.statvfs(path)
    except OSError:
        return -1, -1, -1, -1
    size = status.f_frsize
    return size * status.f_blocks, size * status.f_bavail, status.f_files, status.f_ffree


def read_pids(proc: Path) -> tuple[int, int]:
    """(how many tasks the kernel allows, how many there are)."""
    limits = [_number(proc / "sys" / "kernel" / name) for name in ("pid_max", "threads-max")]
    try:
        running = int((proc / "loadavg").read_text().split()[3].split("/")[1])
    except (OSError, ValueError, IndexError):
        running = -1
    return min((limit for limit in limits if limit >= 0), default=-1), running


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return -1


def _numbers(path: Path) -> dict[str, int]:
    """`key number` lines; others are skipped."""
    found: dict[str, int] = {}
    try:
        text = path.read_text()
    except OSError:
        return found
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[1].isdecimal():
            found[fields[0]] = int(fields[1])
    return found
