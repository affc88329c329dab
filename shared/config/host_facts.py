"""Checks what the host must be for a configuration (config.md 2.2, 2.3): cgroups, swap, CPUs, memory, NUMA nodes,
kernel settings.

`read_host_facts` reads, below a root; the checks only compare. Knows no defaults: failCgroupV1 must be decided.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shared.config.findings import WARNING, Findings
from shared.config.host_cpus import CpuLayout, check_static_policy, no_layout, read_cpu_layout
from shared.config.nested import value_of
from shared.config.rules_data import note, pairs
from shared.config.rules_placement import numa_limit
from shared.host.cgroup_name import cgroup_name
from shared.host.kernel_settings import KUBELET_SETTINGS, assignments, differing_settings, read_kernel_settings
from shared.host.machine import meminfo
from shared.model.cpu_list import parse_cpus
from shared.model.quantity import NANO, Quantity, QuantityError, parse_quantity

_CGROUPS = "sys/fs/cgroup"
_MAX_NUMA_NODES = 8
_WITHOUT_CONTROLLERS = ("systemd", "unified")


@dataclass(frozen=True)
class HostFacts:
    """Has what was read; an empty set or 0 = could not be read, and is not checked. `cpu_layout` reads when called."""

    cgroup_v1: bool = False
    swap_on: bool = False
    online_cpus: frozenset[int] = frozenset()
    cpu_layout: Callable[[], CpuLayout] = field(default=no_layout, compare=False)
    memory: int = 0  # bytes
    numa_nodes: frozenset[int] = frozenset()
    hierarchies: tuple[str, ...] = ()  # directories with a root cgroup
    systemd: bool = True  # it booted the machine: /run/systemd/system exists
    kernel_settings: Mapping[str, int] = field(default_factory=dict)  # those that a kubelet sets, by path


def read_host_facts(root: str = "/") -> HostFacts:
    """Return the facts of this machine, or of the tree below `root`. Reads /proc and /sys; raises nothing."""
    top = Path(root)
    unified = (top / _CGROUPS / "cgroup.controllers").is_file()
    mounted = unified or (top / _CGROUPS).is_dir()
    swaps = _read(top / "proc/swaps").splitlines()
    online = parse_cpus(_read(top / "sys/devices/system/cpu/online").strip()) or frozenset()
    return HostFacts(
        cgroup_v1=mounted and not unified,
        swap_on=len([line for line in swaps if line.strip()]) > 1,  # the first is the heading
        online_cpus=online,
        cpu_layout=partial(read_cpu_layout, top, online),
        memory=meminfo(top / "proc").get("MemTotal", 0),
        numa_nodes=parse_cpus(_read(top / "sys/devices/system/node/online").strip()) or frozenset(),
        hierarchies=_hierarchies(top / _CGROUPS, unified),
        systemd=not (top / "run").is_dir() or (top / "run/systemd/system").is_dir(),
        kernel_settings=read_kernel_settings(top),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _hierarchies(cgroups: Path, unified: bool) -> tuple[str, ...]:
    if unified:
        return (str(cgroups),)
    try:
        directories = sorted(path.parent for path in cgroups.glob("*/cgroup.procs"))
    except OSError:
        return ()
    return tuple(str(path) for path in directories if path.name not in _WITHOUT_CONTROLLERS)


def check_host(data: dict[str, Any], facts: HostFacts, findings: Findings) -> None:
    """Note what this machine cannot give; what merely may surprise is a warning."""
    if facts.swap_on and data.get("failSwapOn"):
        what = "running with swap on is not supported while failSwapOn is true"
        findings.add("failSwapOn", what, "switch swap off with swapoff -a, or set failSwapOn to false")
    if data.get("protectKernelDefaults"):
        _check_kernel_settings(facts.kernel_settings, findings)
    _check_cgroups(data, facts, findings)
    _check_cpus(data, facts, findings)
    _check_reservations(data, facts, findings)
    _check_numa(data, facts, findings)


def _check_kernel_settings(values: Mapping[str, int], findings: Findings) -> None:
    """Every difference is in one finding, with the kubelet's text and one command for all (node.md 4.8)."""
    if wrong := differing_settings(values):
        differences = [
            f"invalid kernel flag: {setting}, expected value: {KUBELET_SETTINGS[setting]}, actual value: {value}"
            for setting, value in wrong.items()
        ]
        remedy = f"run sysctl -w {assignments(wrong)}, or set it to false"
        findings.add("protectKernelDefaults", f"is true, and there is {'; '.join(differences)}", remedy)


def _check_cgroups(data: dict[str, Any], facts: HostFacts, findings: Findings) -> None:
    if facts.cgroup_v1:
        if data.get("failCgroupV1"):
            what = "is true, and this machine uses cgroup v1"
            findings.add("failCgroupV1", what, "set it to false, or boot with systemd.unified_cgroup_hierarchy=1")
        if data.get("singleProcessOOMKill") is False:
            what = "is false, which cgroup v1 cannot do"
            findings.add("singleProcessOOMKill", what, "leave it out, or move to cgroup v2")
        if value_of(data, "memorySwap.swapBehavior") == "LimitedSwap":
            what = "is LimitedSwap, which cgroup v1 cannot do"
            findings.add("memorySwap.swapBehavior", what, "set it to NoSwap, or move to cgroup v2")
    systemd = data.get("cgroupDriver") == "systemd"
    if systemd and not facts.systemd:
        remedy = "set it to cgroupfs here and in the container runtime, or boot this machine with systemd"
        findings.add("cgroupDriver", "is systemd, and process 1 of this machine is not systemd", remedy)
    parts = [part for part in (data.get("cgroupRoot") or "").split("/") if part not in ("", ".", "..")]
    if not parts:
        return
    cgroup = cgroup_name(parts, "systemd" if systemd else "cgroupfs").lstrip("/")
    missing = [directory for directory in facts.hierarchies if not (Path(directory) / cgroup).is_dir()]
    if missing:
        what = f"/{cgroup} does not exist in {missing[0]}{' and others' if missing[1:] else ''} and will be made"
        findings.add("cgroupRoot", what, "make it first where something has to limit it", severity=WARNING)


def _check_cpus(data: dict[str, Any], facts: HostFacts, findings: Findings) -> None:
    text = data.get("reservedSystemCPUs") or ""
    missing = (parse_cpus(text) or frozenset()) - facts.online_cpus
    if text and facts.online_cpus and missing:
        what = f'is "{text}", but CPU {min(missing)} is not online'
        findings.add("reservedSystemCPUs", what, "name CPUs of /sys/devices/system/cpu/online")
    kept = _kept_back(data, "cpu", 0)
    check_static_policy(data, facts.cpu_layout, facts.online_cpus, facts.numa_nodes, kept, findings)


def _check_reservations(data: dict[str, Any], facts: HostFacts, findings: Findings) -> None:
    """Refuse reservations of more than the machine has."""
    capacity = {"cpu": Quantity.of_base(len(facts.online_cpus)), "memory": Quantity.of_base(facts.memory, binary=True)}
    for resource, there in capacity.items():
        kept = _kept_back(data, resource, facts.memory)
        if there and kept is not None and kept > there:
            what = (
                f'Resource "{resource}" has a reservation of {kept} but capacity of {there}. '
                "Expected capacity >= reservation"
            )
            key = "systemReserved" if data.get("systemReserved") else "kubeReserved"
            findings.add(key, what, "reserve less, in systemReserved, kubeReserved and evictionHard")


def _kept_back(data: dict[str, Any], resource: str, memory: int) -> Quantity | None:
    """systemReserved + kubeReserved + hard eviction; None where one of them cannot be read."""
    cpus = parse_cpus(data.get("reservedSystemCPUs") or "")
    if resource == "cpu" and cpus is not None:
        return Quantity.of_base(len(cpus))
    total = Quantity.of_base(0)
    try:
        for key in ("systemReserved", "kubeReserved"):
            total += parse_quantity(dict(pairs(data, key)).get(resource) or "0")
        text = dict(pairs(data, "evictionHard")).get("memory.available", "0") if resource == "memory" else "0"
        if not text.endswith("%"):
            return total + parse_quantity(text)
        [fraction] = struct.unpack("f", struct.pack("f", float(text[:-1]) / 100))  # kept in 32 bits
        return total + Quantity.of_base(int(memory * fraction) if 0 < fraction < 1 else 0)
    except (QuantityError, ValueError, OverflowError):  # a finding of the rules
        return None


def _check_numa(data: dict[str, Any], facts: HostFacts, findings: Findings) -> None:
    policy, nodes = data.get("topologyManagerPolicy") or "none", facts.numa_nodes
    limits = dict(pairs(data, "topologyManagerPolicyOptions"))
    most = numa_limit(limits.get("max-allowable-numa-nodes", "")) or _MAX_NUMA_NODES
    if policy != "none" and len(nodes) > most:
        what = f"is {policy}, which is unsupported on machines with more than {most} NUMA Nodes; here are {len(nodes)}"
        findings.add("topologyManagerPolicy", what, "set it to none, or raise max-allowable-numa-nodes in the options")
    if data.get("memoryManagerPolicy") != "Static":
        return
    totals: dict[str, Quantity] = {"memory": Quantity.of_base(0)}
    for index, entry in enumerate(data.get("reservedMemory") or ()):
        node = (entry or {}).get("numaNode") or 0
        if nodes and node not in nodes:
            what = f"references a NUMA node {node} that does not exist on this machine"
            note(findings, "reservedMemory", f"[{index}]", what, f"the nodes are {', '.join(map(str, sorted(nodes)))}")
        for kind, amount in ((entry or {}).get("limits") or {}).items():
            try:
                totals[kind] = totals.get(kind, Quantity.of_base(0)) + parse_quantity(amount)
            except QuantityError:  # a finding of the rules
                return
    _check_totals(data, totals, facts, findings)


def _check_totals(data: dict[str, Any], totals: dict[str, Quantity], facts: HostFacts, findings: Findings) -> None:
    """Refuse amounts of `reservedMemory` that are not those of the reservation, kind by kind."""
    for kind, total in totals.items():
        kept = _kept_back(data, "memory", facts.memory) if kind == "memory" else Quantity.of_base(0)
        percentage = dict(pairs(data, "evictionHard")).get("memory.available", "").endswith("%")
        if kept is None or (kind == "memory" and percentage and not facts.memory):
            continue
        if total != kept:
            wanted = f"{kept} ({kept.nanos // NANO} bytes)" if kind == "memory" else str(kept)
            what = f'the total amount "{total}" of type "{kind}" is not "{wanted}", which is kept back of it'
            findings.add("reservedMemory", what, "make it systemReserved + kubeReserved + evictionHard")
