"""Decides for the SLI of pod startup whether a pod has started, has state, and what it waited for (pods.md D). Pure."""

from collections.abc import Iterable

from shared.model.objects import Object
from shared.model.runtime import Container
from shared.podspec.containers import ContainerKind, init_containers, init_kind

Interval = tuple[float, float]  # begin and end, seconds since the epoch

_STATELESS = ("secret", "configMap", "downwardAPI", "emptyDir", "projected", "gitRepo", "image", "ephemeral")
_EPHEMERAL = "csi.storage.k8s.io/ephemeral"
_SECOND = 1e9  # nanoseconds


def has_started(status: Object) -> bool:
    """Return whether this pod status shows each regular container as running."""
    states = [entry.get("state") or {} for entry in status.get("containerStatuses") or ()]
    return bool(states) and all((state.get("running") or {}).get("startedAt") for state in states)


def is_stateful(pod: Object) -> bool:
    """Return whether the pod has a volume that outlives it, so that its start may wait for an attach."""
    return any(map(_outlives_pod, (pod.get("spec") or {}).get("volumes") or ()))


def init_runs(pod: Object, instances: Iterable[Container]) -> list[Interval]:
    """Return when the ended instances of the pod's init containers ran, without sidecars."""
    names = {spec["name"] for spec in init_containers(pod) if init_kind(spec) is ContainerKind.INIT}
    return [
        (instance.started_at / _SECOND, instance.finished_at / _SECOND)
        for instance in instances
        if instance.name in names and 0 < instance.started_at < instance.finished_at
    ]


def covered(intervals: Iterable[Interval]) -> float:
    """Return the seconds that are in at least one of the intervals."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _outlives_pod(volume: Object) -> bool:
    if any(volume.get(source) is not None for source in _STATELESS):
        return False
    attributes = (volume.get("csi") or {}).get("volumeAttributes") or {}
    return attributes.get(_EPHEMERAL) != "true"
