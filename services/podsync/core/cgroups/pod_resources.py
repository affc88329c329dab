"""Decides what a pod's status shows as its resources: what is allocated, with the CPU and memory of its cgroup.

The cgroup does not show requests of memory, nor limits that it is not given (pods.md 9.2). Reads nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from services.podsync.core.cgroups.pod_cgroup import CgroupValues, pod_cgroup_values
from services.podsync.core.node.node_facts import NodeFacts
from shared.model.objects import Object
from shared.model.quantity import Quantity, parse_quantity
from shared.podspec.resources import (
    milli_of_shares,
    pod_limits,
    pod_requests,
    quota,
    resource_list,
    shares,
    shares_of_weight,
    weight,
    written,
)

MAX_PAGE_BYTES = 65536  # the kernel rounds a limit of memory down to pages


def actual_resources(pod: Object, values: CgroupValues, facts: NodeFacts, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return `resources` of the status. `pod` has what is allocated, `values` are those of its cgroup, `shown` are the
    resources that the status shows until now. The kernel's units are coarser than quantities: a value is converted only
    where neither the allocated amount nor the one shown until now results in it."""
    allocated = {"requests": pod_requests(pod), "limits": pod_limits(pod)}
    before = {kind: resource_list({"resources": shown}, kind) for kind in allocated}
    target, period = pod_cgroup_values(pod, facts), values.cpu_period or facts.cpu_cfs_quota_period

    def show(kind: str, name: str, results: Callable[[Quantity], bool], converted: Quantity | None) -> None:
        if name not in allocated[kind]:
            return
        for amounts in (allocated[kind], before[kind]):
            if name in amounts and results(amounts[name]):
                allocated[kind][name] = amounts[name]
                return
        del allocated[kind][name]
        if converted is not None:
            allocated[kind][name] = converted

    kept = _kept_shares(values.cpu_shares or 0, facts)
    show(
        "requests",
        "cpu",
        lambda a: _kept_shares(shares(a.milli()), facts) == kept,
        parse_quantity(f"{milli_of_shares(kept)}m"),
    )
    if (target.cpu_quota or 0) > 0:
        found = max(values.cpu_quota or 0, 0)
        limit = parse_quantity(f"{found * 1000 // period}m") if found else None
        show("limits", "cpu", lambda a: quota(a.milli(), period) == found, limit)
    if target.memory_limit:
        size = values.memory_limit
        limit = None if size is None else Quantity.of_base(size, binary=True)
        show("limits", "memory", lambda a: size is not None and 0 <= a.base() - size < MAX_PAGE_BYTES, limit)
    return {kind: written(amounts) for kind, amounts in allocated.items() if amounts}


def _kept_shares(cpu_shares: int, facts: NodeFacts) -> int:
    """Return what the kernel keeps of cpu.shares; cgroup v2 has weights instead."""
    return shares_of_weight(weight(cpu_shares)) if facts.cgroup_v2 else cpu_shares
