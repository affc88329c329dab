"""Decides names and values of the cgroups of pods and QoS classes, and finds the pod of a name (pods.md 6.6, node.md
4.1-4.4). Writes nothing.
"""

from msgspec import Struct, field

from services.podsync.core.cgroups.class_requests import ClassRequests
from services.podsync.core.cgroups.memory_qos import class_limit, class_protection, protected
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.placement.pod_placement import needs_no_quota
from shared.host.cgroup_name import SLICE, SYSTEMD, cgroup_name
from shared.model.objects import Object, uid
from shared.model.quantity import ZERO
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import (
    has_pod_level_resources,
    hugepage_size,
    init_phases,
    pod_level,
    pod_limits,
    pod_requests,
    quota,
    resource_list,
    shares,
)

ROOT = "kubepods"
POD_PREFIX = "pod"
UNLIMITED_HUGEPAGES = 1 << 62
_QOS_COMPONENT = {QosClass.BURSTABLE: ("burstable",), QosClass.BEST_EFFORT: ("besteffort",), QosClass.GUARANTEED: ()}


class CgroupValues(Struct, frozen=True, kw_only=True):
    """Has the values of a cgroup. None = the file is not written."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None  # microseconds per period; -1 = no limit
    cpu_period: int | None = None  # microseconds
    memory_limit: int | None = None  # bytes
    memory_min: int | None = None  # bytes; on v2 alone
    memory_low: int | None = None  # bytes; on v2 alone
    pids_limit: int | None = None
    hugepage_limits: dict[str, int] = field(default_factory=dict)  # page size ("2MB") -> bytes, every size of the host
    cpuset_cpus: str = ""  # such as 0-7; "" = those of the cgroup above


def qos_cgroup_name(qos: QosClass, facts: NodeFacts) -> str:
    """Return the name of a QoS class's cgroup, which for Guaranteed is kubepods itself."""
    return cgroup_name((*_components(facts), *_QOS_COMPONENT[qos]), facts.cgroup_driver)


def qos_cgroup_names(facts: NodeFacts) -> tuple[str, ...]:
    """Return the names of the cgroups whose children are cgroups of pods: kubepods, burstable, besteffort."""
    return tuple(qos_cgroup_name(qos, facts) for qos in QosClass)


def pod_uid_of(directory: str, driver: str) -> str | None:
    """Return the UID of the pod whose cgroup's directory has this name; None where it belongs to no pod."""
    if driver == SYSTEMD:
        if not directory.endswith(SLICE):
            return None
        directory = directory.removesuffix(SLICE).rpartition("-")[2].replace("_", "-")
    pod_uid = directory.removeprefix(POD_PREFIX)
    return pod_uid if pod_uid and pod_uid != directory else None


def pod_cgroup_name(pod: Object, facts: NodeFacts) -> str:
    """Return the name of a pod's cgroup, which is also CRI's cgroup_parent."""
    components = (*_components(facts), *_QOS_COMPONENT[qos_class(pod)], f"{POD_PREFIX}{uid(pod)}")
    return cgroup_name(components, facts.cgroup_driver)


def possible_pod_cgroup_names(pod_uid: str, facts: NodeFacts) -> tuple[str, ...]:
    """Return the names that the cgroup of a pod may have of which only the UID is known: one for each QoS class."""
    own = f"{POD_PREFIX}{pod_uid}"
    places = ((*_components(facts), *_QOS_COMPONENT[qos], own) for qos in QosClass)
    return tuple(cgroup_name(components, facts.cgroup_driver) for components in places)


def pod_cgroup_values(pod: Object, facts: NodeFacts) -> CgroupValues:
    """Return the values of a pod's new cgroup; only a resize changes them later."""
    qos = qos_class(pod)
    requests, limits = pod_requests(pod), pod_limits(pod)
    hugepages = dict.fromkeys(facts.page_sizes, 0)
    hugepages |= {size: amount.base() for name, amount in requests.items() if (size := hugepage_size(name))}
    pids = facts.pod_pids_limit if facts.pod_pids_limit > 0 else None
    if qos is QosClass.BEST_EFFORT:
        return CgroupValues(cpu_shares=shares(0), pids_limit=pids, hugepage_limits=hugepages)
    protection = protected(qos, requests.get("memory", ZERO).base(), facts)
    limited_cpu = qos is QosClass.GUARANTEED or _all_limited(pod, "cpu")
    limited_memory = qos is QosClass.GUARANTEED or _all_limited(pod, "memory")
    has_quota = facts.cpu_cfs_quota and (facts.quota_of_exclusive_cpus or not needs_no_quota(pod, facts.placement))
    cpu_limit = quota(limits.get("cpu", ZERO).milli(), facts.cpu_cfs_quota_period)
    return CgroupValues(
        cpu_shares=shares(requests.get("cpu", limits.get("cpu", ZERO)).milli()),
        cpu_quota=(cpu_limit if has_quota else -1) if limited_cpu else None,
        cpu_period=facts.cpu_cfs_quota_period if limited_cpu else None,
        memory_limit=limits.get("memory", ZERO).base() if limited_memory else None,
        memory_min=protection.get("memory_min"),
        memory_low=protection.get("memory_low"),
        pids_limit=pids,
        hugepage_limits=hugepages,
    )


def qos_cgroup_values(qos: QosClass, requested: ClassRequests, facts: NodeFacts) -> CgroupValues:
    """Return the values of a QoS class's cgroup: CPU by the requests of Burstable pods, memory as configured, huge
    pages without limit. The limits of kubepods (Guaranteed) follow from node allocatable instead."""
    cpu = {
        QosClass.GUARANTEED: None,
        QosClass.BEST_EFFORT: shares(0),
        QosClass.BURSTABLE: shares(requested.burstable_cpu),
    }
    protection = class_protection(qos, requested, facts)
    return CgroupValues(
        cpu_shares=cpu[qos],
        memory_limit=class_limit(qos, requested, facts),
        memory_min=protection.get("memory_min"),
        memory_low=protection.get("memory_low"),
        hugepage_limits=dict.fromkeys(facts.page_sizes, UNLIMITED_HUGEPAGES),
    )


def _components(facts: NodeFacts) -> tuple[str, ...]:
    return (*(part for part in facts.cgroup_root.split("/") if part), ROOT)


def _all_limited(pod: Object, resource: str) -> bool:
    """Return whether the pod, or every container of it, has a limit; an init container counts with the sidecars before
    it."""
    if has_pod_level_resources(pod) and resource in pod_level(pod, "limits"):
        return True
    regular = [resource_list(container, "limits") for container in (pod.get("spec") or {}).get("containers") or ()]
    return bool(regular) and all(limits.get(resource) for limits in (*regular, *init_phases(pod, "limits")))
