"""Reads the agent's processes from the kernel and the lock files, which works while no process answers."""

import json
import os
import time
from pathlib import Path

from msgspec import Struct

from bus.manifest import Holder, read_holder

_TICKS = os.sysconf("SC_CLK_TCK")
_STOPPED = ("T", "t")


class ProcessFacts(Struct, frozen=True, kw_only=True):
    """One service's process. Times are seconds, memory is bytes; None = cannot be read."""

    holder: Holder | None  # None = it does not run
    stopped: bool = False  # stopped by a signal (SIGSTOP)
    restarts: int = 0  # unrequested restarts since this supervisord first started it, at most 15
    age: float | None = None
    cpu: float | None = None  # user and system time since its start
    memory: int | None = None  # proportional set size: pages shared with other services count in part


def lock_path(run_dir: str, service: str) -> Path:
    """Return the lock file of a service."""
    return Path(run_dir) / "locks" / f"{service}.lock"


def process_of(run_dir: str, service: str, before: ProcessFacts | None = None) -> ProcessFacts:
    """Read the process of a service. Never raises for a process that ends meanwhile. `before`: an earlier reading,
    whose memory is returned again if the process is the same, because reading memory takes 2 ms and the rest 0.1 ms."""
    path = lock_path(run_dir, service)
    holder = read_holder(path)
    restarts = max(_starts(path) - 1, 0)
    if holder is None:
        return ProcessFacts(holder=None, restarts=restarts)
    process = Path(f"/proc/{holder.pid}")
    try:
        fields = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ProcessFacts(holder=None, restarts=restarts)
    known = before.memory if before is not None and before.holder == holder else None
    return ProcessFacts(
        holder=holder,
        stopped=fields[0] in _STOPPED,
        restarts=restarts,
        age=time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS,
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory=_memory(process) if known is None else known,
    )


def _starts(lock: Path) -> int:
    try:
        return len(json.loads(lock.read_bytes())["starts"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _memory(process: Path) -> int | None:
    try:
        text = (process / "smaps_rollup").read_text(encoding="ascii", errors="replace")
        return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))
    except (OSError, ValueError, StopIteration):  # the process belongs to another user
        return None
