"""Reads the host: memory, the filesystem of the root directory, processes, CPUs. What cannot be read is -1, never an
error."""

import os
from pathlib import Path

from services.pleg.core.node_observation import MachineReading
from shared.host import meminfo


def read_machine(nodefs: str, proc: Path = Path("/proc")) -> MachineReading:
    """One reading. `nodefs`: a path on the filesystem of the root directory."""
    try:
        filesystem = os.statvfs(nodefs)
        capacity = filesystem.f_frsize * filesystem.f_blocks
    except OSError:
        capacity = -1
    return MachineReading(
        memory_capacity=meminfo(proc).get("MemTotal", -1),
        nodefs_capacity=capacity,
        cpus=os.sysconf("SC_NPROCESSORS_ONLN"),
    )


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
