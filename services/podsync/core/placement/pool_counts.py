"""Says from which pool each resource of a pod was taken, and how its containers have it, as the kubelet counts it with
the feature gate PodLevelResourceManagers (node.md 9.1): from the node's, or from that of the pod as a whole."""

from collections.abc import Iterator

from services.podsync.core.placement.attempt import Attempt
from services.podsync.core.placement.pod_division import EmptyPodSharedPoolError
from services.podsync.core.placement.pod_placement import PodPlacement

CPU, MEMORY = "cpu", "memory"
OF_NODE, OF_POD = "node", "pod"


def allocations(placement: PodPlacement) -> Iterator[tuple[str, str]]:
    """Yield the resource and the source of each part that somebody got alone: the pod as a whole, or a container."""
    for resource, whole in ((CPU, placement.cpus), (MEMORY, placement.memory)):
        if whole:
            yield resource, OF_NODE
        for given in placement.containers.values():
            if given.cpus if resource == CPU else given.memory:
                yield resource, OF_POD if whole else OF_NODE


def assignments(placement: PodPlacement) -> Iterator[tuple[str, str]]:
    """Yield the resource and the type of assignment of each container that has a part alone, or shares its pod's."""
    for resource, whole in ((CPU, placement.cpus), (MEMORY, placement.memory)):
        for given in placement.containers.values():
            if given.cpus if resource == CPU else given.memory:
                yield resource, "pod_exclusive" if whole else "node_exclusive"
            elif whole:
                yield resource, "pod_shared"


def errors(attempt: Attempt) -> Iterator[tuple[str, str]]:
    """Yield the resource that could not be given, and the pool that it was to come from; nothing where the pod was
    placed, or refused for another reason."""
    cause = attempt.error.__cause__ or attempt.error if attempt.error is not None else None
    source = OF_POD if isinstance(cause, EmptyPodSharedPoolError) else OF_NODE
    if attempt.cpu_errors:
        yield CPU, source
    if attempt.memory_errors:
        yield MEMORY, source
