"""Rules of cgroups and of what is reserved: enforcement, CPU quota, memory (config.md 2.2). Pure; knows no machine."""

from collections.abc import Mapping
from typing import Any

from shared.config.findings import WARNING, Findings
from shared.config.rules_data import SECOND, nanoseconds, note, pairs
from shared.model.quantity import QuantityError, parse_quantity

_ENFORCE = "enforceNodeAllocatable"
_PODS, _NONE = "pods", "none"
_RESERVED_BY = {"system-reserved": "systemReservedCgroup", "kube-reserved": "kubeReservedCgroup"}
_COMPRESSIBLE = "-compressible"
ENFORCEABLE = (_NONE, _PODS, *(name + ending for name in _RESERVED_BY for ending in ("", _COMPRESSIBLE)))


def check_cgroups(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    """Check the cgroup root, what is enforced on which cgroups, CPU quota, memory and reserved memory."""
    root = data.get("cgroupRoot") or ""
    if ".." in root.split("/"):
        findings.add("cgroupRoot", f'is "{root}", must be without ..', "write the cgroup's path from the top")
    if data.get("systemCgroups") and not root:
        findings.add("systemCgroups", "is set while cgroupRoot is empty", "set cgroupRoot, such as /")
    if data.get("systemCgroups") and not (data.get("systemCgroups") or "").strip("/"):
        findings.add("systemCgroups", 'is "/", the root cgroup, whose processes it is for', "name a cgroup below it")
    own, kube = data.get("kubeletCgroups") or "", data.get("kubeReservedCgroup") or ""
    if own and kube and not own.startswith(kube):
        what = f"is {own}, outside of kubeReservedCgroup {kube}: what is reserved there does not hold for the kubelet"
        findings.add("kubeletCgroups", what, "choose a cgroup below it", severity=WARNING)
    _check_enforcement(data, findings)
    _check_quota(data, gates, findings)
    _check_memory(data, gates, findings)
    check_reserved_memory(data, findings)


def _check_enforcement(data: dict[str, Any], findings: Findings) -> None:
    items: list[str] = list(data.get(_ENFORCE) or ())
    for index, item in enumerate(items):
        inner = f"[{index}]"
        if item not in ENFORCEABLE:
            note(findings, _ENFORCE, inner, f'is "{item}", must be one of {", ".join(ENFORCEABLE)}', "change it")
            continue
        if item in items[:index]:
            note(findings, _ENFORCE, inner, f"{item} is given twice", "remove one of them")
        if item == _NONE and len(items) > 1:
            note(findings, _ENFORCE, inner, "none goes with nothing else", "remove it, or the others")
        base = item.removesuffix(_COMPRESSIBLE)
        if item != base and base in items:
            note(findings, _ENFORCE, inner, f"{item} does not go with {base}", "remove one of them")
        cgroup = _RESERVED_BY.get(base, "")
        if cgroup and not data.get(cgroup):
            note(findings, _ENFORCE, inner, f"{item} needs {cgroup}, which is not set", f"set {cgroup}, or remove it")
    if data.get("cgroupsPerQOS") is False and any(item != _NONE for item in items):
        findings.add("cgroupsPerQOS", "is false while enforceNodeAllocatable is not empty", "set that to [none]")


def _check_quota(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    period = nanoseconds(data, "cpuCFSQuotaPeriod")
    if period is not None and period != SECOND // 10 and not gates.get("CustomCPUCFSQuotaPeriod"):
        what = f"is {data['cpuCFSQuotaPeriod']}, must be 100ms while feature gate CustomCPUCFSQuotaPeriod is off"
        findings.add("cpuCFSQuotaPeriod", what, "leave it out, or switch the gate on")


def _check_memory(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    if data.get("memoryThrottlingFactor") == 0:
        findings.add("memoryThrottlingFactor", "is 0, must be above 0 and at most 1", "leave it out for the default")
    if data.get("memoryReservationPolicy") == "TieredReservation" and not gates.get("MemoryQoS"):
        what = "is TieredReservation while feature gate MemoryQoS is off"
        findings.add("memoryReservationPolicy", what, "switch the gate on, or leave this out")
    for resource, text in pairs(data, "qosReserved"):
        if resource != "memory":
            note(findings, "qosReserved", f".{resource}", f'cannot reserve "{resource}" resource', "only memory can be")
        elif not _is_percentage(text):
            what = f'is "{text}", must be a whole percentage from 0% to 100%'
            note(findings, "qosReserved", f".{resource}", what, 'such as "50%"')


def _is_percentage(text: str) -> bool:
    number = text.rstrip("%")
    digits = number.removeprefix("-" if number.startswith("-") else "+")
    is_integer = digits.isascii() and digits.isdigit() and len(digits) < 19
    return text.endswith("%") and is_integer and 0 <= int(number) <= 100


def check_reserved_memory(data: dict[str, Any], findings: Findings) -> None:
    """Check `reservedMemory`: which amounts can be reserved, and that each is reserved once for a NUMA node."""
    seen: set[tuple[int, str]] = set()
    for index, entry in enumerate(data.get("reservedMemory") or ()):
        node = (entry or {}).get("numaNode") or 0
        for kind, amount in ((entry or {}).get("limits") or {}).items():
            inner = f"[{index}].limits.{kind}"
            if kind != "memory" and not kind.startswith("hugepages-"):
                note(findings, "reservedMemory", inner, "must be memory or hugepages-<size>", "remove it")
                continue
            try:
                if parse_quantity(0 if amount is None else amount).nanos == 0:
                    note(findings, "reservedMemory", inner, "is 0, must be more", "remove it")
            except QuantityError:
                note(findings, "reservedMemory", inner, f'is "{amount}", must be a quantity', 'such as "1Gi"')
            if (node, kind) in seen:
                note(findings, "reservedMemory", inner, f"a second {kind} of NUMA node {node}", "add them up")
            seen.add((node, kind))
