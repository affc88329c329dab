"""Decides which pods and containers the PodResources API lists (server.md 16, node.md 8.3), from desired pods; what
the containers have alone is of admitted pods."""

from dataclasses import dataclass

from bus.messages.podsync import AdmittedPod, NumaMemory
from shared.model.cpu_list import parse_cpus
from shared.model.objects import Object, name, namespace

ENDED = ("Succeeded", "Failed")  # phases of pods that are no longer active


@dataclass(frozen=True)
class ContainerEntry:
    """Has one container with the CPUs and the memory that it has alone."""

    name: str
    cpus: tuple[int, ...] = ()
    memory: tuple[NumaMemory, ...] = ()


@dataclass(frozen=True)
class PodEntry:
    """Has one pod with its containers, restartable init containers first."""

    name: str
    namespace: str
    containers: tuple[ContainerEntry, ...]


def is_active(status: Object) -> bool:
    """Return whether a pod of this status has not ended."""
    return status.get("phase") not in ENDED


def pod_entry(pod: Object, admitted: AdmittedPod | None) -> PodEntry:
    """Return the entry of a pod; `admitted`: what podsync gave it, None = nothing yet."""
    spec = pod.get("spec") or {}
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    names = [str(each.get("name")) for each in (*sidecars, *(spec.get("containers") or ()))]
    return PodEntry(name(pod), namespace(pod), tuple(_container_entry(each, admitted) for each in names))


def cpu_ids(listed: str) -> tuple[int, ...]:
    """Return the ids of a list of CPUs, in ascending order."""
    return tuple(sorted(parse_cpus(listed) or ()))


def _container_entry(container: str, admitted: AdmittedPod | None) -> ContainerEntry:
    if admitted is None:
        return ContainerEntry(container)
    return ContainerEntry(container, cpu_ids(admitted.cpus.get(container, "")), admitted.memory.get(container, ()))
