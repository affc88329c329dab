"""Divides the CPUs and the memory of a pod with resources of its own among its containers (KEP-5526, feature gate
PodLevelResourceManagers): one that is Guaranteed by itself gets a part alone, and the others share what is left.

CPUs of plain init containers go on to later containers. Where such a container has CPUs alone, a sidecar that shares
CPUs and runs beside it keeps off them, also later: what a container has does not change while it runs.
"""

from collections.abc import Callable, Mapping

from services.podsync.core.placement.attempt import Step
from services.podsync.core.placement.cpu_policy import CpuPolicy
from services.podsync.core.placement.cpu_requests import exclusive_cpus, may_have_own
from services.podsync.core.placement.devices_of_pod import DevicesOfPod
from services.podsync.core.placement.hint import Hint, PlacementError
from services.podsync.core.placement.memory_accounting import MEMORY
from services.podsync.core.placement.memory_policy import MemoryPolicy
from services.podsync.core.placement.pod_placement import ContainerPlacement, MemoryBlock, PodPlacement
from shared.model.frozen_copy import replace
from shared.model.machine_topology import CpuSet
from shared.model.objects import Object
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import has_pod_level_resources, is_sidecar, main_containers

_NONE: CpuSet = frozenset()
Blocks = tuple[MemoryBlock, ...]


class EmptyPodSharedPoolError(PlacementError):
    """Says that containers with parts of their own leave nothing for another container of the pod."""

    def __init__(self, resource: str, container: str) -> None:
        text = (
            f"the containers with {resource} of their own leave none of the pod's {resource} for container {container}"
        )
        super().__init__(text, "EmptyPodSharedPoolError")


def is_divided(pod: Object) -> bool:
    """Return whether the pod gets CPUs and memory as a whole, where whole pods are aligned."""
    return has_pod_level_resources(pod) and qos_class(pod) is QosClass.GUARANTEED


def divide_pod(
    pod: Object,
    hint: Hint,
    cpu_policy: CpuPolicy,
    memory_policy: MemoryPolicy,
    devices: DevicesOfPod,
    free: CpuSet,
    others: tuple[PodPlacement, ...],
    steps: list[Step],
) -> PodPlacement:
    """Return what the pod gets as a whole, with the parts of its containers. `hint`: the NUMA nodes chosen for it;
    `free`: the node's shared pool; `others`: the placements of the other active pods. The steps up to the end, or up to
    the error, are added to `steps`. Raise PlacementError, and PreferenceNeededError where a plugin must be asked."""
    names = [container["name"] for container in main_containers(pod)]
    try:
        whole = cpu_policy.allocate_pod(pod, hint.nodes, free)
        cpus = divide_cpus(pod, whole, lambda each: cpu_policy.requested(pod, each), cpu_policy.take) if whole else {}
    except PlacementError:
        steps.append(Step(cpus_requested=True, is_refused=True, alignments=cpu_policy.misalignments))
        raise
    steps.append(Step(alignments=cpu_policy.alignments(whole)))
    steps += [Step(cpus_requested=True) for given in cpus.values() if given.cpus]
    try:
        blocks = memory_policy.allocate_pod(pod, hint, others)
        memory = divide_memory(pod, blocks, lambda each: memory_policy.sizes(pod, each)) if blocks else {}
    except PlacementError:
        steps.append(Step(memory_requested=True, is_refused=True))
        raise
    steps += [Step(memory_requested=True)] * len(memory)
    placed = {
        name: replace(cpus.get(name, ContainerPlacement()), memory=memory.get(name, ()), affinity=hint.nodes)
        for name in names
    }
    own = PodPlacement(containers=placed if whole or blocks else {}, cpus=whole, memory=blocks)
    for container in main_containers(pod):
        try:
            given = devices.allocate(pod, container, hint.nodes, own)
        except PlacementError:
            steps.append(Step(is_refused=True))
            raise
        if given:
            with_devices = replace(placed[container["name"]], devices=given)
            own = replace(own, containers={**own.containers, container["name"]: with_devices})
    return own


def divide_cpus(
    pod: Object, whole: CpuSet, requested: Callable[[Object], int], take: Callable[[CpuSet, int], CpuSet]
) -> dict[str, ContainerPlacement]:
    """Return the CPUs of each container of the pod, by its name. `whole`: the pod's; `requested`: how many a container
    is to have alone; `take` chooses that many. Raise PlacementError."""
    counts = {container["name"]: requested(container) for container in main_containers(pod)}
    _check_that_some_is_left(pod, counts, len(whole), "CPUs")
    given, pool = {}, whole
    for container in main_containers(pod):
        name = container["name"]
        if counts[name] and not _ends_before_others(pod, container):
            given[name] = ContainerPlacement(cpus=take(pool, counts[name]))
            pool -= given[name].cpus
    started, sharing = _NONE, list[str]()  # of sidecars so far: CPUs of their own, and names of those that share
    for container in main_containers(pod):
        name = container["name"]
        if _ends_before_others(pod, container):
            apart = whole - started - given[sharing[0]].pool if sharing else _NONE
            given[name] = _for_init_container(whole - started, apart, counts[name], take)
            given |= {other: replace(given[other], pool=given[other].pool - given[name].cpus) for other in sharing}
        elif counts[name]:
            started |= given[name].cpus
        else:
            given[name] = ContainerPlacement(pool=pool)
            sharing.append(name)
    return given


def divide_memory(pod: Object, whole: Blocks, sizes: Callable[[Object], Mapping[str, int]]) -> dict[str, Blocks]:
    """Return the memory of each container that gets some alone, by its name; it is of the NUMA nodes of `whole`, the
    pod's. `sizes`: the bytes by kind that a container is to get. Raise PlacementError."""
    own = {container["name"]: sizes(container) for container in main_containers(pod)}
    total = sum(block.size for block in whole if block.kind == MEMORY)
    _check_that_some_is_left(pod, {name: kinds.get(MEMORY, 0) for name, kinds in own.items()}, total, MEMORY)
    return {
        name: tuple(replace(block, size=kinds[block.kind]) for block in whole if block.kind in kinds)
        for name, kinds in own.items()
        if kinds
    }


def with_pools(pod: Object, given: PodPlacement) -> PodPlacement:
    """Return the placement of a Go kubelet's checkpoint, which does not say whether a container of a pod with resources
    of its own has its part alone: the pod says it."""
    if not given.cpus and not given.memory:
        return given
    containers = dict(given.containers)
    for container in main_containers(pod):
        own = containers.get(container["name"])
        if own is None:
            continue
        if given.cpus and not exclusive_cpus(pod, container, pod_level=True):
            own = replace(own, cpus=_NONE, pool=own.cpus)
        if given.memory and not may_have_own(pod, container, pod_level=True):
            own = replace(own, memory=())
        containers[container["name"]] = own
    return replace(given, containers=containers)


def _check_that_some_is_left(pod: Object, own: Mapping[str, int], total: int, resource: str) -> None:
    """Raise EmptyPodSharedPoolError where a container shares what others leave of `total`, and they leave nothing at
    some time. `own`: what each container has alone, by its name."""
    running, sharing = 0, ""  # of regular containers and of the sidecars so far
    for container in main_containers(pod):
        name = container["name"]
        if not _ends_before_others(pod, container):
            running, sharing = running + own[name], sharing or ("" if own[name] else name)
        elif (left_out := sharing if own[name] else name) and running + own[name] >= total:
            raise EmptyPodSharedPoolError(resource, left_out)
    if sharing and running >= total:
        raise EmptyPodSharedPoolError(resource, sharing)


def _for_init_container(
    runnable: CpuSet, apart: CpuSet, count: int, take: Callable[[CpuSet, int], CpuSet]
) -> ContainerPlacement:
    """Return the CPUs of a plain init container, of those that no sidecar beside it has alone. It takes those first
    that are `apart` from what sidecars beside it share."""
    if not count:
        return ContainerPlacement(pool=runnable)
    cpus = take(apart, min(count, len(apart)))
    return ContainerPlacement(cpus=cpus | take(runnable - cpus, count - len(cpus)))


def _ends_before_others(pod: Object, container: Object) -> bool:
    """Return whether it is an init container that has ended before later containers start."""
    return container in ((pod.get("spec") or {}).get("initContainers") or ()) and not is_sidecar(container)
