"""Decides which memory of QoS classes, pods and containers is reserved, protected or throttled (node.md 4.5-4.7). Pure.

`qosReserved` limits the lower classes. The gate MemoryQoS, on cgroup v2 alone, sets memory.high of containers and, with
TieredReservation, memory.min of what Guaranteed pods request and memory.low of what Burstable pods request.
"""

from services.podsync.core.cgroups.class_requests import ClassRequests
from services.podsync.core.node.node_facts import NodeFacts
from shared.podspec.qos import QosClass

MIN_LIMIT_BYTES = 4096  # the kernel takes a limit of 0 or less for none
_PAGE_BYTES = 4096
_SAFE_KERNEL = (5, 9)


def compatibility_warning(*, on_v2: bool, kernel: tuple[int, int]) -> str | None:
    """Return why this machine does not have what the gate MemoryQoS needs; `kernel`: its version, (5, 10) for 5.10."""
    if not on_v2:
        return "feature gate MemoryQoS is on and has no effect: this machine uses cgroup v1"
    if kernel < _SAFE_KERNEL:
        version = ".".join(map(str, kernel))
        return f"feature gate MemoryQoS is on: kernel {version} may stall at memory.high, 5.9 and later do not"
    return None


def class_limit(qos: QosClass, requested: ClassRequests, facts: NodeFacts) -> int | None:
    """Return the memory limit of a class in bytes, so that the classes above it keep a share of their requests; None
    where nothing is reserved."""
    share, available = facts.qos_reserved_memory, facts.enforced_memory
    if share is None or not available or qos is QosClass.GUARANTEED:
        return None
    limit = available - requested.guaranteed_memory * share // 100
    if qos is QosClass.BEST_EFFORT:
        limit -= requested.burstable_memory * share // 100
    return max(limit, MIN_LIMIT_BYTES)


def protected(qos: QosClass, amount: int, facts: NodeFacts) -> dict[str, int]:
    """Return what a pod or container of the class with this request (bytes) is protected by: `memory_min` or
    `memory_low`; nothing without a request."""
    if not facts.protects_memory or amount <= 0:
        return {}
    return {QosClass.GUARANTEED: {"memory_min": amount}, QosClass.BURSTABLE: {"memory_low": amount}}.get(qos, {})


def class_protection(qos: QosClass, requested: ClassRequests, facts: NodeFacts) -> dict[str, int]:
    """Return what a class is protected by: kubepods (Guaranteed) by `memory_min` of all requests, Burstable by
    `memory_low` of its own. Both are 0 where the policy protects nothing, which takes an earlier protection away, also
    from the pods below: the kernel protects no more of them than of the class."""
    if not facts.memory_qos and not facts.resets_memory_qos:
        return {}
    tiered = facts.protects_memory
    if qos is QosClass.GUARANTEED:
        return {"memory_min": requested.guaranteed_memory + requested.burstable_memory if tiered else 0}
    if qos is QosClass.BURSTABLE:
        return {"memory_low": requested.burstable_memory if tiered else 0}
    return {}


def throttled_at(request: int, limit: int, facts: NodeFacts) -> int | None:
    """Return memory.high of a container in bytes: between its request and its limit, or what the node has for pods
    where it has no limit (0); None where that is not above the request, as for a container that may use no more, and
    where no container is throttled."""
    highest = limit or facts.enforced_memory
    if not facts.memory_qos or not facts.memory_throttling_factor or not highest:
        return None
    high = int((request + facts.memory_throttling_factor * (highest - request)) // _PAGE_BYTES) * _PAGE_BYTES
    return high if high > request else None


def takes_throttles_back(facts: NodeFacts) -> bool:
    """Return whether no container is throttled, and some may still have a memory.high of an earlier configuration: with
    the gate off in Kubernetes 1.37, and with the gate on but without a factor."""
    return facts.resets_memory_qos or (facts.memory_qos and not facts.memory_throttling_factor)
