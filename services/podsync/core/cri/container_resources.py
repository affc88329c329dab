"""Computes CPU, memory and huge pages of containers and sandboxes in the kernel's units (pods.md 6.5, node.md 4.7)."""

from services.podsync.core.cgroups.memory_qos import protected, throttled_at
from services.podsync.core.cri.message import message
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.placement.pod_placement import (
    ContainerPlacement,
    container_cpus,
    container_nodes,
    needs_no_quota,
)
from services.podsync.core.pod.allocation import Resources
from shared.cri.interface import Message
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.quantity import ZERO
from shared.podspec.containers import find_container
from shared.podspec.pod_source import is_critical, is_node_critical
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import (
    ResourceList,
    container_totals,
    hugepage_size,
    is_sidecar,
    main_containers,
    pod_level,
    pod_limits,
    pod_overhead,
    pod_requests,
    quota,
    resource_list,
    shares,
)

_GUARANTEED, _BEST_EFFORT = -997, 1000
_FACTOR_BEFORE_1_37 = 0.9  # the default of memoryThrottlingFactor
_BURSTABLE = range(3, 1000)  # between the scores of the node's own processes and of BestEffort


def container_resources(pod: Object, container: Object, facts: NodeFacts) -> Message:
    """Return the CRI LinuxContainerResources of one container."""
    limits = {**pod_level(pod, "limits"), **resource_list(container, "limits")}
    requests = resource_list(container, "requests")
    name = str(container.get("name"))
    given = facts.placement.containers.get(name, ContainerPlacement())
    fields = _linux_resources(requests, limits, facts, unlimited=bool(given.cpus))
    memory_limit = fields.get("memory_limit_in_bytes", 0)
    sizes = {hugepage_size(name): amount.base() for name, amount in limits.items() if hugepage_size(name)}
    return message(
        **fields,
        memory_swap_limit_in_bytes=memory_limit if facts.swap_controller and not facts.cgroup_v2 else 0,
        oom_score_adj=oom_score_adj(pod, container, facts.memory_capacity),
        cpuset_cpus=container_cpus(facts.placement, name, facts.shared_cpus),
        cpuset_mems=",".join(map(str, container_nodes(facts.placement, name))),
        hugepage_limits=[message(page_size=size, limit=sizes.get(size, 0)) for size in facts.page_sizes],
        unified=_unified(pod, container, facts),
    )


def sandbox_resources(pod: Object, facts: NodeFacts) -> Message:
    """Return a CRI LinuxContainerResources with the pod's totals, without overhead."""
    requests, limits = pod_requests(pod, overhead=False), pod_limits(pod, overhead=False)
    return _linux_resources(requests, limits, facts, unlimited=needs_no_quota(pod, facts.placement))


def sandbox_overhead(pod: Object, facts: NodeFacts) -> Message:
    """Return a CRI LinuxContainerResources of the pod's overhead; empty where the spec names none."""
    overhead = pod_overhead(pod)
    return _linux_resources(overhead, overhead, facts) if overhead else {}


def oom_score_adj(pod: Object, container: Object, memory_capacity: int) -> int:
    """Return the score by which the kernel chooses what it kills when the node's memory (bytes) is exhausted; the
    highest goes first."""
    qos = qos_class(pod)
    if is_node_critical(pod) or qos is QosClass.GUARANTEED:
        return _GUARANTEED
    if qos is QosClass.BEST_EFFORT:
        return _BEST_EFFORT
    extra = _pod_level_remainder(pod)
    request = _memory_request(container) + extra
    spec = pod.get("spec") or {}
    if is_sidecar(container) and container in (spec.get("initContainers") or ()):
        # A sidecar must not be killed before the containers that it serves.
        smallest = min((_memory_request(other) for other in spec.get("containers") or ()), default=0) + extra
        request = max(request, smallest)
    adjust = 1000 - 1000 * request // memory_capacity if memory_capacity > 0 else _BEST_EFFORT
    return min(max(adjust, _BURSTABLE.start), _BURSTABLE.stop - 1)


def _linux_resources(
    requests: ResourceList, limits: ResourceList, facts: NodeFacts, *, unlimited: bool = False
) -> Message:
    """Return CPU and memory. `unlimited`: the container or pod has CPUs of its own, which need no quota."""
    limit = limits.get("cpu", ZERO)
    limited = facts.quota_of_exclusive_cpus or not unlimited
    cpu_quota = quota(limit.milli(), facts.cpu_cfs_quota_period) if limited else -1
    cpu = requests.get("cpu", limit)  # a request of 0 does not default to the limit
    return message(
        cpu_shares=shares(cpu.milli()),
        cpu_period=facts.cpu_cfs_quota_period if facts.cpu_cfs_quota else 0,
        cpu_quota=cpu_quota if facts.cpu_cfs_quota else 0,
        memory_limit_in_bytes=limits.get("memory", ZERO).base(),
    )


def _unified(pod: Object, container: Object, facts: NodeFacts) -> dict[str, str]:
    if not facts.cgroup_v2:
        return {}
    unified = {} if facts.single_process_oom_kill else {"memory.oom.group": "1"}
    unified |= _memory_qos(pod, container, facts)
    return unified | ({"memory.swap.max": str(_swap(pod, container, facts))} if facts.swap_controller else {})


def left_throttles(pod: Object, name: str, given: Resources | None, facts: NodeFacts) -> set[str]:
    """Return what memory.high of the container of this name may be from an earlier configuration, with the factor of
    this one, or with that of before Kubernetes 1.37 where this one has none, or from resources before a resize. It is
    empty where the container is throttled now, and where memory.high is not touched. `given`: the resources that the
    container has, None = those of its spec; a resize that was interrupted may have written the memory of either. What
    a resize before that one has written, and an earlier factor, is not known any more: such a value stays."""
    found = find_container(pod, name)
    if found is None or not (facts.memory_qos or facts.resets_memory_qos):
        return set()
    spec = found[1]
    if "memory.high" in _memory_qos(pod, spec, facts):
        return set()
    specs = [spec] if given is None else [spec, {"resources": given}]
    limits = {_memory_limit(each) for each in specs}
    if "memory" in pod_level(pod, "limits"):
        limits.add(0)  # what the container was given includes the pod's limit, and does not say so
    factor = facts.memory_throttling_factor or _FACTOR_BEFORE_1_37
    earlier = replace(facts, memory_qos=True, memory_throttling_factor=factor)
    throttles = {throttled_at(_memory_request(each), limit, earlier) for each in specs for limit in limits}
    return {str(high) for high in throttles if high is not None}


def _memory_qos(pod: Object, container: Object, facts: NodeFacts) -> dict[str, str]:
    request = _memory_request(container)
    files = {name.replace("_", "."): amount for name, amount in protected(qos_class(pod), request, facts).items()}
    if (high := throttled_at(request, _memory_limit(container), facts)) is not None:
        files["memory.high"] = high
    return {file: str(amount) for file, amount in files.items()}


def _swap(pod: Object, container: Object, facts: NodeFacts) -> int:
    """Return the container's bytes of swap (node.md 4.13): of the node's swap the share that its memory request has of
    the node's memory. Only Burstable pods that are not critical get swap, and only containers whose request is below
    their limit."""
    request = resource_list(container, "requests").get("memory")
    limit = resource_list(container, "limits").get("memory")
    if not (facts.limited_swap and request and facts.memory_capacity > 0):
        return 0
    if qos_class(pod) is not QosClass.BURSTABLE or is_critical(pod) or request == limit:
        return 0
    return int(request.base() / facts.memory_capacity * facts.swap_capacity)


def _memory_request(container: Object) -> int:
    return resource_list(container, "requests").get("memory", ZERO).base()


def _memory_limit(container: Object) -> int:
    return resource_list(container, "limits").get("memory", ZERO).base()


def _pod_level_remainder(pod: Object) -> int:
    """Return each container's equal share of the bytes of memory that the pod requests beyond its containers."""
    request = pod_level(pod, "requests").get("memory")
    if request is None:
        return 0
    spare = request.base() - container_totals(pod, "requests").get("memory", ZERO).base()
    return max(spare, 0) // max(len(main_containers(pod)), 1)
