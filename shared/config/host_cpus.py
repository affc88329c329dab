"""Checks the static CPU manager policy and its options against this machine's CPUs (node.md 4.10).

`read_cpu_layout` reads, below a root; `check_static_policy` compares, and has the layout read only for a static policy:
it is five files of each CPU.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from shared.config.findings import WARNING, Findings
from shared.config.rules_data import note, pairs, truth
from shared.model.cpu_list import parse_cpus, write_cpus
from shared.model.quantity import NANO, Quantity

_OPTIONS = "cpuManagerPolicyOptions"
_MAX_CPUS = 8192  # of which the layout is read


class CpuLayout(Struct, frozen=True):
    """Has what was read of the online CPUs; empty, 0 or None = could not be read, and is not checked."""

    cores: frozenset[frozenset[int]] = frozenset()  # the CPUs of each core
    sockets: int = 0
    shared_caches: bool | None = None  # whether the kernel shows L3 caches


def no_layout() -> CpuLayout:
    """Return that nothing is known."""
    return CpuLayout()


def read_cpu_layout(root: Path, online: frozenset[int]) -> CpuLayout:
    """Return the layout of this machine, or of the tree below `root`. Raises nothing."""
    cores: set[frozenset[int]] = set()
    sockets: set[str] = set()
    levels: set[str] = set()
    for cpu in sorted(online)[:_MAX_CPUS]:
        directory = root / f"sys/devices/system/cpu/cpu{cpu}"
        if siblings := parse_cpus(_read(directory / "topology/thread_siblings_list")):
            cores.add(siblings & online)
        if socket := _read(directory / "topology/physical_package_id"):
            sockets.add(socket)
        if not levels:  # all CPUs show the same levels
            levels.update(_read(path) for path in directory.glob("cache/index*/level"))
    return CpuLayout(frozenset(cores), len(sockets), "3" in levels if levels else None)


def check_static_policy(
    data: dict[str, Any],
    read_layout: Callable[[], CpuLayout],
    online: frozenset[int],
    numa_nodes: frozenset[int],
    kept: Quantity | None,
    findings: Findings,
) -> None:
    """Note where containers cannot get CPUs of their own. `kept`: CPU that is kept back, None where it is not known."""
    if data.get("cpuManagerPolicy") != "static" or not online:
        return
    layout = read_layout()
    options = {name for name, text in pairs(data, _OPTIONS) if truth(text)}
    if kept is not None and -(-kept.nanos // NANO) >= len(online):
        if "strict-cpu-reservation" in options:
            what = f"leaves no CPU to any container: all {len(online)} are reserved"
            note(findings, _OPTIONS, ".strict-cpu-reservation", what, "reserve less, or switch it off")
        else:
            what = f"is static while all {len(online)} CPUs are reserved: no container gets CPUs of its own"
            findings.add("cpuManagerPolicy", what, "reserve less in systemReserved and kubeReserved", severity=WARNING)
    if "align-by-socket" in options and numa_nodes and layout.sockets > len(numa_nodes):
        what = f"is not possible on a machine with {layout.sockets} sockets and {len(numa_nodes)} NUMA nodes"
        note(findings, _OPTIONS, ".align-by-socket", what, "switch it off")
    if "prefer-align-cpus-by-uncorecache" in options and layout.shared_caches is False:
        what = "aligns to sockets here: the kernel shows no L3 cache"
        note(findings, _OPTIONS, ".prefer-align-cpus-by-uncorecache", what, "switch it off", WARNING)
    _check_whole_cores(data, layout, options, findings)


def _check_whole_cores(data: dict[str, Any], layout: CpuLayout, options: set[str], findings: Findings) -> None:
    """With full-pcpus-only, the other CPUs of a core of which one is reserved are given to no container."""
    text = data.get("reservedSystemCPUs") or ""
    reserved = parse_cpus(text) or frozenset()
    unused = [cpu for core in layout.cores if core & reserved for cpu in core - reserved]
    if "full-pcpus-only" in options and unused:
        listed = write_cpus(unused)
        what = f'is "{text}", and full-pcpus-only gives the other CPUs of the same cores ({listed}) to no container'
        remedy = f'set it to "{write_cpus(reserved | set(unused))}"'
        findings.add("reservedSystemCPUs", what, remedy, severity=WARNING)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
