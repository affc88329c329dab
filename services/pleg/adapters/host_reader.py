"""Reads the host: memory, the filesystem of the root directory, processes, CPUs. A figure that cannot be read is -1,
never an error."""

import os
from pathlib import Path

from services.pleg.adapters.filesystem_reader import FilesystemReader
from services.pleg.core.node_observation import MachineReading
from shared.host.machine import meminfo

_PROC = Path("/proc")


class MachineReader:
    """Reads the machine. While a filesystem does not answer, its last capacity counts, and one thread waits for it."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc, self._filesystems = proc, FilesystemReader()
        self._capacity = -1

    async def read(self, nodefs: str) -> MachineReading:
        """Read the machine within 2 s. `nodefs`: a path on the filesystem of the root directory."""
        filesystem = await self._filesystems.read(nodefs, 0.0)
        if filesystem is not None and filesystem.usage.capacity is not None:
            self._capacity = filesystem.usage.capacity
        return MachineReading(
            memory_capacity=meminfo(self._proc).get("MemTotal", -1),
            nodefs_capacity=self._capacity,
            cpus=os.sysconf("SC_NPROCESSORS_ONLN"),
        )


def read_pids(proc: Path) -> tuple[int, int]:
    """Return how many tasks the kernel allows, and how many there are; -1 = not known."""
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
