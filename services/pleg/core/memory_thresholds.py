"""Computes at which use of memory the kernel notifies pleg, so that a threshold of eviction is noticed when it is met
(node.md 5.9)."""

from collections.abc import Iterable

from bus.messages.usage import CgroupUsage, NodeUsage
from shared.model.eviction import threshold_amount

MEMORY = "memory.available"
ROOT, PODS = "root", "pods"


def usage_thresholds(
    node: NodeUsage, amounts: Iterable[str], *, limits_pods: bool, huge_pages: int = 0
) -> dict[tuple[str, str], int]:
    """Return bytes of memory in use, page cache included, by cgroup (`root` or `pods`) and configured amount.
    `amounts`: the thresholds of memory.available, quantities or percentages; `limits_pods`: they also apply to the
    limit of kubepods; `huge_pages`: bytes of the node's memory that are reserved for them.
    """
    thresholds: dict[tuple[str, str], int] = {}
    of_node = None if node.memory_capacity is None else node.memory_capacity - huge_pages
    places = [(ROOT, of_node, node.cgroup)]
    if limits_pods:
        pods = [container.cgroup for container in node.system_containers if container.name == "pods"]
        places += [(PODS, _limit(cgroup), cgroup) for cgroup in pods]
    for place, capacity, usage in places:
        if capacity is None or usage.memory_usage is None or usage.memory_working_set is None:
            continue
        reclaimable = usage.memory_usage - usage.memory_working_set
        for amount in amounts:
            if quantity := threshold_amount(amount, capacity):
                thresholds[place, amount] = max(0, capacity - quantity + reclaimable)
    return thresholds


def _limit(usage: CgroupUsage) -> int | None:
    if usage.memory_available is None or usage.memory_working_set is None:
        return None
    return usage.memory_available + usage.memory_working_set
