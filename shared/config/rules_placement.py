"""Rules of the CPU, memory and topology managers' policies and options (config.md 2.2, 2.3). Pure; knows no machine."""

from collections.abc import Mapping
from typing import Any

from shared.config.findings import WARNING, Findings
from shared.config.rules_data import nanoseconds, note, pairs, truth
from shared.model.cpu_list import parse_cpus
from shared.model.quantity import QuantityError, parse_quantity

_BETA, _ALPHA = "CPUManagerPolicyBetaOptions", "CPUManagerPolicyAlphaOptions"
_ACROSS_CORES, _ACROSS_NUMA = "distribute-cpus-across-cores", "distribute-cpus-across-numa"
_UNCORE, _FULL, _SOCKET = "prefer-align-cpus-by-uncorecache", "full-pcpus-only", "align-by-socket"
CPU_OPTIONS = {  # -> the gate it needs
    _FULL: "", "strict-cpu-reservation": "", _UNCORE: "", _ACROSS_NUMA: _BETA, _SOCKET: _ALPHA, _ACROSS_CORES: _ALPHA,
}  # fmt: skip
_CONFLICTS = ((_FULL, _ACROSS_CORES), (_ACROSS_NUMA, _ACROSS_CORES), (_UNCORE, _ACROSS_CORES), (_UNCORE, _ACROSS_NUMA))
_CPU_KEY, _TOPOLOGY_KEY = "cpuManagerPolicyOptions", "topologyManagerPolicyOptions"
_PERIOD = "cpuManagerReconcilePeriod"
_PREFER_CLOSEST, _MAX_NODES = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
_MIN_NUMA_NODES = 8  # that `max-allowable-numa-nodes` permits


def check_placement(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    """Policies and options that go together, and what a static policy needs."""
    _check_cpu(data, gates, findings)
    _check_topology(data, findings)
    if data.get("memoryManagerPolicy") == "Static" and not data.get("reservedMemory"):
        what = "is Static while reservedMemory is empty"
        findings.add("memoryManagerPolicy", what, "list in reservedMemory what each NUMA node keeps for the system")
    if data.get("cpuManagerPolicy") == "static" and _reserves_no_cpu(data):
        what = "is static, which requires systemReserved.cpu + kubeReserved.cpu to be greater than zero"
        findings.add("cpuManagerPolicy", what, "reserve CPU there, or name CPUs in reservedSystemCPUs")
    if (nanoseconds(data, _PERIOD) or 0) < 0:
        what = "is negative: a cpuset that the runtime refuses is set again after 1 s"
        findings.add(_PERIOD, what, "give it a positive duration, or leave it out", severity=WARNING)


def _check_cpu(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    options = pairs(data, _CPU_KEY)
    if data.get("cpuManagerPolicy") == "none" and options:
        findings.add(_CPU_KEY, "is set while cpuManagerPolicy is none, which has no options", "remove one of them")
        return
    enabled = []
    for name, text in options:
        inner = f".{name}"
        if name not in CPU_OPTIONS:
            note(findings, _CPU_KEY, inner, f'"{name}" is not an option', f"options are {', '.join(CPU_OPTIONS)}")
        elif (gate := CPU_OPTIONS[name]) and not gates.get(gate):
            note(findings, _CPU_KEY, inner, f"needs feature gate {gate}, which is off", "switch it on, or remove this")
        elif truth(text) is None:
            note(findings, _CPU_KEY, inner, f'is "{text}", must be true or false', "change it")
        elif truth(text):
            enabled.append(name)
    for one, other in _CONFLICTS:
        if one in enabled and other in enabled:
            note(findings, _CPU_KEY, f".{other}", f"does not go with {one}", "switch one of them off")
    if _SOCKET in enabled and data.get("topologyManagerPolicy") == "single-numa-node":
        what = "does not go with topologyManagerPolicy single-numa-node"
        note(findings, _CPU_KEY, f".{_SOCKET}", what, "change one of them")


def _check_topology(data: dict[str, Any], findings: Findings) -> None:
    options = pairs(data, _TOPOLOGY_KEY)
    if options and data.get("topologyManagerPolicy") == "none":
        what = "is ignored while topologyManagerPolicy is none"
        findings.add(_TOPOLOGY_KEY, what, "choose a policy, or remove the options", severity=WARNING)
        return
    for name, text in options:
        inner = f".{name}"
        if name == _PREFER_CLOSEST:
            if truth(text) is None:
                note(findings, _TOPOLOGY_KEY, inner, f'is "{text}", must be true or false', "change it")
        elif name != _MAX_NODES:
            remedy = f"options are {_PREFER_CLOSEST}, {_MAX_NODES}"
            note(findings, _TOPOLOGY_KEY, inner, f'"{name}" is not an option', remedy)
        elif (most := numa_limit(text)) is None or most < _MIN_NUMA_NODES:
            what = f'is "{text}", must be a whole number of at least {_MIN_NUMA_NODES}'
            note(findings, _TOPOLOGY_KEY, inner, what, "change it or leave it out")


def numa_limit(text: str) -> int | None:
    """Return the number in `max-allowable-numa-nodes`; None when it is none."""
    digits = text.removeprefix("-" if text.startswith("-") else "+")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def _reserves_no_cpu(data: dict[str, Any]) -> bool:
    if data.get("reservedSystemCPUs"):
        return parse_cpus(data["reservedSystemCPUs"]) == frozenset()
    try:
        amounts = [
            parse_quantity(text).nanos
            for key in ("systemReserved", "kubeReserved")
            for resource, text in pairs(data, key)
            if resource == "cpu"
        ]
    except QuantityError:  # a finding of its own
        return False
    return sum(amounts) <= 0
