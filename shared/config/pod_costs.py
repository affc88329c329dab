"""Decides what a changed setting costs the pods that run: they restart, end, may be evicted, or keep what they
have. Pure.

A setting without a row changes nothing for them. Rows are named as in `readers`: a field of EffectiveConfig, a key that
is read from the document, or a gate.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from shared.config.rules_data import truth


class PodEffect(StrEnum):
    """The gravest first."""

    RESTART = "restart"  # containers are stopped and started again
    END = "end"  # some pods end and do not come back
    UNMANAGED = "unmanaged"  # podsync may not start: they run on, and no pod starts, changes or ends
    EVICT = "evict"  # some may be evicted or killed
    LATER = "later"  # only pods or containers that start later have the new value
    NONE = "none"


class PodCost(Struct, frozen=True):
    """The cost of a change for running pods. `phrase`: what happens, "" = nothing."""

    effect: PodEffect = PodEffect.NONE
    phrase: str = ""


NO_COST = PodCost()
_LIMITS = ("max_pods", "pods_per_core")  # raised they cost nothing; podsPerCore 0 is no limit
_LATER_PODS = "pods that run keep the old value; it is for pods that start later"
_LATER_CONTAINERS = "containers that run keep the old value; it is for containers that start later"
_LATER_CPUS = "pods that run keep their CPUs and NUMA nodes; the new value is for pods that start later"
_NO_START = "podsync does not start, and no pod starts, changes or ends, until the node is drained and"
_OTHER_CPUS = f"{_NO_START} cpu_manager_state in the root directory is deleted"
_OTHER_MEMORY = f"{_NO_START} memory_manager_state in the root directory is deleted"
_STRICT = "strict-cpu-reservation"
_OTHER_CGROUP = "every pod restarts: its cgroup has another path"
_OTHER_RUNTIME = "every pod starts again in the other runtime; the containers of the old one are left alone there"
_ALLOCATABLE = "pods that use more memory together than is left to them are evicted or killed; no pod is rejected again"
_THRESHOLD = "pods are evicted where a new threshold is crossed already"
_FEWER = "pods that run stay; a new one is rejected (OutOfpods) while there are as many"
_STATIC = "static pods that the new place does not have end"
_POLICIES = ("cpu_manager_policy", "memory_manager_policy")
_PLACES = ("static_pod_path", "static_pod_url")  # without an old one there is no such pod

_ROWS: tuple[tuple[PodEffect, str, str], ...] = (
    (PodEffect.RESTART, _OTHER_CGROUP, "cgroup_root cgroups_per_qos"),
    (PodEffect.RESTART, f"unless the runtime reports its own driver, {_OTHER_CGROUP}", "cgroup_driver"),
    (PodEffect.RESTART, _OTHER_RUNTIME, "container_runtime_endpoint docker embedded_containerd"),
    (PodEffect.RESTART, "every pod starts again: its records are in the old directory", "root_dir"),
    (
        PodEffect.END,
        "the node has another name: its pods of the API server end, static pods start again with another UID",
        "node_name",
    ),
    (PodEffect.END, _STATIC, "static_pod_path static_pod_url_header"),
    (PodEffect.END, "static pods of the old URL end; the new one's have another UID and start again", "static_pod_url"),
    (PodEffect.END, "pods of the other kind of node end: those of the API server, or applied ones", "joins_cluster"),
    (PodEffect.EVICT, _THRESHOLD, "eviction_hard eviction_soft eviction_soft_grace_period"),
    (PodEffect.EVICT, _ALLOCATABLE, "enforce_node_allocatable kube_reserved system_reserved"),
    (PodEffect.EVICT, _ALLOCATABLE, "qos_reserved featureGates.QOSReserved"),
    (
        PodEffect.EVICT,
        "where it is switched on, pods above their limits of ephemeral storage are evicted",
        "local_storage_capacity_isolation",
    ),
    (PodEffect.LATER, _FEWER, "max_pods pods_per_core"),
    (PodEffect.LATER, "pods that run stay admitted", "allowed_unsafe_sysctls"),
    (
        PodEffect.LATER,
        _LATER_PODS,
        "cluster_dns cluster_domain default_pod_sysctls resolv_conf pod_pids_limit pod_logs_dir",
    ),
    (PodEffect.UNMANAGED, _OTHER_CPUS, "cpu_manager_policy"),
    (PodEffect.UNMANAGED, _OTHER_MEMORY, "memory_manager_policy"),
    (
        PodEffect.UNMANAGED,
        f"with the static policy, where a container has a CPU alone that is reserved now, {_OTHER_CPUS}",
        "reserved_system_cpus",
    ),
    (PodEffect.UNMANAGED, f"with memoryManagerPolicy Static, {_OTHER_MEMORY}", "reserved_memory"),
    (PodEffect.UNMANAGED, _OTHER_CPUS, "cpu_manager_policy_options"),
    (PodEffect.LATER, _LATER_CPUS, "topology_manager_policy topology_manager_policy_options topology_manager_scope"),
    (PodEffect.LATER, _LATER_CONTAINERS, "featureGates.DisableCPUQuotaWithExclusiveCPUs"),
    (
        PodEffect.LATER,
        _LATER_PODS,
        (
            "userNamespaces.idsPerPod featureGates.DefaultPodSysctls featureGates.EmptyDirVolumeMode "
            "featureGates.AtomicWriteVolumeUserFields featureGates.SELinuxMount"
        ),
    ),
    (PodEffect.LATER, _LATER_CONTAINERS, "cpu_cfs_quota cpu_cfs_quota_period seccomp_default"),
    (PodEffect.LATER, _LATER_CONTAINERS, "memory_throttling_factor memory_reservation_policy featureGates.MemoryQoS"),
    (
        PodEffect.LATER,
        _LATER_CONTAINERS,
        "memorySwap.swapBehavior singleProcessOOMKill featureGates.ContainerStopSignals",
    ),
    (
        PodEffect.LATER,
        "a container that starts later may need credentials for an image that is present",
        "image_verification_policy preloaded_images",
    ),
)
POD_COSTS = {name: PodCost(effect, phrase) for effect, phrase, names in _ROWS for name in names.split()}


def pod_cost(setting: str, old: object, new: object) -> PodCost:
    """Return the cost of this change. `setting`: as a row is named."""
    if setting == "cgroups_per_qos" and old:
        return PodCost(PodEffect.LATER, _LATER_PODS)  # a pod that has a cgroup of its own keeps it
    if setting in _LIMITS and isinstance(old, int) and isinstance(new, int) and (not new or 0 < old < new):
        return NO_COST
    if setting in _PLACES and not old:
        return NO_COST
    if setting in _POLICIES and str(old).lower() == "none":
        return PodCost(PodEffect.LATER, _LATER_CPUS)  # this agent writes no file where nothing is placed
    if setting == "cpu_manager_policy_options" and _is_strict(old) == _is_strict(new):
        return PodCost(PodEffect.LATER, _LATER_CPUS)
    return POD_COSTS.get(setting, NO_COST)


def _is_strict(options: object) -> bool:
    return isinstance(options, Mapping) and bool(truth(str(options.get(_STRICT, "false"))))


def gravest(costs: tuple[PodCost, ...]) -> PodCost:
    """Return the one with the gravest effect; of several the first."""
    order = list(PodEffect)
    return min(costs, key=lambda cost: order.index(cost.effect), default=NO_COST)
