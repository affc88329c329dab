"""Computes what a pod asks for in total, and the kernel's units for it (node.md 4.2, 4.19).

Takes defaulted and validated pods: quantities that don't parse count as absent here, validation names them.
"""

from collections.abc import Mapping
from typing import Any

from shared.model.objects import Object
from shared.model.quantity import ZERO, Quantity, QuantityError, parse_quantity

ResourceList = dict[str, Quantity]

MIN_SHARES, MAX_SHARES = 2, 262144
MIN_QUOTA_MICROSECONDS = 1000
HUGEPAGES = "hugepages-"


def resource_list(holder: Mapping[str, Any], kind: str) -> ResourceList:
    """`resources.<kind>` ("requests" or "limits") of a container or of a pod spec."""
    return parse_resources((holder.get("resources") or {}).get(kind))


def parse_resources(raw: Mapping[str, Any] | None) -> ResourceList:
    """Return a resource list from JSON."""
    parsed = {}
    for name, value in (raw or {}).items():
        try:
            parsed[name] = parse_quantity(value)
        except QuantityError:
            continue
    return parsed


def main_containers(pod: Object) -> list[Object]:
    """Init containers, then regular ones: all that resources are counted for."""
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """For an init container: it restarts always and runs beside the regular ones."""
    return container.get("restartPolicy") == "Always"


def is_pod_level(resource: str) -> bool:
    """Resources that spec.resources may set for the whole pod."""
    return resource in ("cpu", "memory") or resource.startswith(HUGEPAGES)


def pod_level(pod: Object, kind: str) -> ResourceList:
    """Return spec.resources.<kind>, with supported resources only."""
    return {name: amount for name, amount in resource_list(pod.get("spec") or {}, kind).items() if is_pod_level(name)}


def has_pod_level_resources(pod: Object) -> bool:
    """Return whether spec.resources sets a request or limit it can set."""
    return bool(pod_level(pod, "requests") or pod_level(pod, "limits"))


def pod_requests(pod: Object, *, overhead: bool = True) -> ResourceList:
    """Effective requests of the pod: the larger of start-up and run, or pod-level values where set; overhead on top."""
    total = {**container_totals(pod, "requests"), **pod_level(pod, "requests")}
    if overhead:
        for name, amount in pod_overhead(pod).items():
            total[name] = total.get(name, ZERO) + amount
    return total


def pod_limits(pod: Object, *, overhead: bool = True) -> ResourceList:
    """Return the effective limits; overhead is added only to resources that have one."""
    total = {**container_totals(pod, "limits"), **pod_level(pod, "limits")}
    if overhead:
        for name, amount in pod_overhead(pod).items():
            if name in total:
                total[name] = total[name] + amount
    return total


def pod_overhead(pod: Object) -> ResourceList:
    """Return the amounts in spec.overhead."""
    return parse_resources((pod.get("spec") or {}).get("overhead"))


def container_totals(pod: Object, kind: str) -> ResourceList:
    """Return what the containers ask for together, without pod-level values and overhead: regular ones and sidecars run
    side by side; a plain init container runs with the sidecars started before it.
    """
    spec = pod.get("spec") or {}
    running: ResourceList = {}
    for container in spec.get("containers") or ():
        _add(running, resource_list(container, kind))
    sidecars: ResourceList = {}
    starting: ResourceList = {}
    for container, phase in zip(spec.get("initContainers") or (), init_phases(pod, kind), strict=True):
        if is_sidecar(container):
            sidecars = phase
        _raise_to(starting, phase)
    _add(running, sidecars)
    _raise_to(running, starting)
    return running


def init_phases(pod: Object, kind: str) -> list[ResourceList]:
    """Return what each init container asks for together with the sidecars before it, which run beside it; in spec
    order.
    """
    phases: list[ResourceList] = []
    sidecars: ResourceList = {}
    for container in (pod.get("spec") or {}).get("initContainers") or ():
        phase = dict(sidecars)
        _add(phase, resource_list(container, kind))
        phases.append(phase)
        if is_sidecar(container):
            sidecars = phase
    return phases


def _add(total: ResourceList, more: ResourceList) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: ResourceList, floor: ResourceList) -> None:
    for name, amount in floor.items():
        if name not in total or total[name] < amount:
            total[name] = amount


def shares(milli_cpu: int) -> int:
    """cpu.shares for a request in thousandths of a core."""
    return MIN_SHARES if milli_cpu == 0 else min(max(milli_cpu * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def quota(milli_cpu: int, period: int) -> int:
    """Return the microseconds per `period` microseconds for a limit in thousandths of a core; 0 = no limit."""
    return 0 if milli_cpu == 0 else max(milli_cpu * period // 1000, MIN_QUOTA_MICROSECONDS)


def weight(cpu_shares: int) -> int:
    """cgroup v2 cpu.weight for cpu.shares, by the linear formula the kubelet uses; 0 = not written."""
    if cpu_shares == 0:
        return 0
    return 10000 if cpu_shares >= MAX_SHARES else 1 + (cpu_shares - 2) * 9999 // 262142


def milli_of_shares(cpu_shares: int) -> int:
    """Return thousandths of a core for cpu.shares, rounded up (node.md 4.2)."""
    return -(-cpu_shares * 1000 // 1024)


def shares_of_weight(cpu_weight: int) -> int:
    """Return cpu.shares for a cgroup v2 cpu.weight, by the kubelet's formula (node.md 4.2); `weight` may give less for
    it."""
    return (cpu_weight - 1) * 262142 // 9999 + 2


def is_extended(name: str) -> bool:
    """Return whether the resource is an extended one, whose domain is not Kubernetes' own."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def hugepage_size(resource: str) -> str:
    """Return the kernel's name of a page size (`2MB`, `1GB`, `64KB`) for `hugepages-2Mi`; "" when it is none."""
    if not resource.startswith(HUGEPAGES):
        return ""
    try:
        size = parse_quantity(resource.removeprefix(HUGEPAGES)).base()
    except QuantityError:
        return ""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return ""


def status_resources(pod: Object) -> dict[str, Any]:
    """Return the pod status's `resources` and, where something is requested, `allocatedResources` (pods.md 9.4): the
    aggregates as allocated, whether or not they are written to the pod's cgroup.
    """
    requests, limits = pod_requests(pod), pod_limits(pod)
    both = {"limits": written(limits), "requests": written(requests)}
    status: dict[str, Any] = {"resources": {kind: amounts for kind, amounts in both.items() if amounts}}
    if requests:
        status["allocatedResources"] = written(requests)
    return status


def written(resources: ResourceList) -> dict[str, str]:
    """Return a resource list as JSON, canonical quantities."""
    return {name: str(amount) for name, amount in sorted(resources.items())}
