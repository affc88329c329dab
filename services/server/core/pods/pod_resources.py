"""Decides which pods and containers the PodResources API lists (server.md 16, node.md 8.3), from desired pods alone."""

from dataclasses import dataclass

from shared.model.objects import Object, name, namespace

ENDED = ("Succeeded", "Failed")  # phases of pods that are no longer active


@dataclass(frozen=True)
class PodEntry:
    """One pod with the names of its containers, restartable init containers first."""

    name: str
    namespace: str
    containers: tuple[str, ...]


def is_active(status: Object) -> bool:
    """Return whether a pod of this status has not ended."""
    return status.get("phase") not in ENDED


def pod_entry(pod: Object) -> PodEntry:
    """Return the entry of a pod."""
    spec = pod.get("spec") or {}
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    containers = tuple(str(each.get("name")) for each in (*sidecars, *(spec.get("containers") or ())))
    return PodEntry(name(pod), namespace(pod), containers)
