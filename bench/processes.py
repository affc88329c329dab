"""Measures what an agent's processes cost: CPU seconds and proportional memory of all processes that one start began.

Reads /proc. A process belongs to an agent by its session or its ancestors, never by its name: what was started in a
session of its own stays in it when its parent dies.
"""

import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bus.messages.services import SERVICES
from services.frame.preloading import process_name

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """One line of /proc/<pid>/stat. `ticks`: user and system time, its own and that of children it has waited for."""

    pid: int
    name: str
    state: str
    parent: int
    session: int
    ticks: int


def parse_stat(text: str) -> Process:
    """Read a stat line; the name in parentheses may hold anything."""
    head, _, rest = text.rpartition(")")
    number, _, name = head.partition(" (")
    fields = rest.split()
    return Process(
        pid=int(number),
        name=name,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        ticks=sum(int(ticks) for ticks in fields[11:15]),
    )


def family(processes: Iterable[Process], root: int) -> dict[int, Process]:
    """Return the processes of the session that `root` began, and all their descendants, by pid. A zombie keeps the CPU
    time of its children."""
    everyone = {process.pid: process for process in processes}
    found = {pid for pid, process in everyone.items() if pid == root or process.session == root}
    while new := {p.pid for p in everyone.values() if p.parent in found and p.pid not in found}:
        found |= new
    return {pid: everyone[pid] for pid in sorted(found)}


def cpu_seconds(processes: Mapping[int, Process], ticks_per_second: int = TICKS) -> float:
    """Return the CPU seconds of these processes and of the children they waited for."""
    return sum(process.ticks for process in processes.values()) / ticks_per_second


def parse_pss(rollup: str, field: str = "Pss") -> float:
    """Return the MiB in the text of /proc/<pid>/smaps_rollup.

    `field`: "Pss", or "Pss_Anon" for memory that belongs to no file, which does not depend on what other programs
    map."""
    for line in rollup.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no line {field}: in smaps_rollup")


_SERVICE_OF = {process_name(f"services.{service}"): service for service in SERVICES}


def label(name: str, arguments: list[str]) -> str:
    """Return the label of a process in tables: the service that runs in it, else the program's name. Also works for a
    checkout whose processes have other names."""
    for argument in arguments:
        if argument.startswith("services."):
            return argument.split(".")[1]
    return _SERVICE_OF.get(name, name)


class AgentProcesses:
    """The processes that began with the process `root`, which was started in its own session."""

    def __init__(self, root: int) -> None:
        self.root = root

    def all(self) -> dict[int, Process]:
        """Return the processes that run now."""
        return family(_everyone(), self.root)

    def cpu(self) -> float:
        """Return the CPU seconds so far."""
        return cpu_seconds(self.all())

    def memory(self, field: str = "Pss") -> dict[str, float]:
        """Return the MiB of proportional memory by label; processes with one label are added up. `field`: as in
        parse_pss."""
        found: dict[str, float] = {}
        for pid, process in self.all().items():
            try:
                arguments = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
                rollup = (PROC / str(pid) / "smaps_rollup").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process ended meanwhile
            if rollup:
                name = label(process.name, arguments)
                found[name] = found.get(name, 0.0) + parse_pss(rollup, field)
        return found

    def pids(self) -> dict[str, int]:
        """Return `root` and its own children by label, without the children of those."""
        found: dict[str, int] = {}
        for pid, process in self.all().items():
            try:
                arguments = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if process.state != "Z" and self.root in (pid, process.parent):
                found.setdefault(label(process.name, arguments), pid)
        return found

    def kill(self) -> None:
        """Kill all processes with SIGKILL, the root first, so that it restarts none."""
        for _ in range(20):
            left = [pid for pid, process in self.all().items() if process.state != "Z"]
            if not left:
                return
            for pid in sorted(left, key=lambda pid: pid != self.root):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _everyone() -> list[Process]:
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                found.append(parse_stat((entry / "stat").read_text(errors="replace")))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found
