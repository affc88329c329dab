"""What the SLI of pod startup counts: whether a pod has started, has state, what it waited for (pods.md D); pure."""

from collections.abc import Iterable

from shared.model.objects import Object
from shared.model.runtime import Container
from shared.podspec.containers import ContainerKind, init_containers, init_kind

Interval = tuple[float, float]  # begin and end, seconds since the epoch

_STATELESS = ("secret", "configMap", "downwardAPI", "emptyDir", "projected", "gitRepo", "image", "ephemeral")
_EPHEMERAL = "csi.storage.k8s.io/ephemeral"
_SECOND = 1e9  # nanoseconds


def has_started(status: Object) -> bool:
    """Whether this pod status shows each regular container running."""
    states = [entry.get("state") or {} for entry in status.get("containerStatuses") or ()]
    return bool(states) and all((state.get("running") or {}).get("startedAt") for state in states)


def is_stateful(pod: Object) -> bool:
    """Whether the pod has a volume that outlives it, so that its start may wait for an attach."""
    return any(map(_outlives_pod, (pod.get("spec") or {}).get("volumes") or ()))


def init_runs(pod: Object, instances: Iterable[Container]) -> list[Interval]:
    """When the instances of the pod's init containers that have ended ran; sidecars, which do not end, are none."""
    names = {one["name"] for one in init_containers(pod) if init_kind(one) is ContainerKind.INIT}
    return [
        (one.started_at / _SECOND, one.finished_at / _SECOND)
        for one in instances
        if one.name in names and 0 < one.started_at < one.finished_at
    ]


def covered(intervals: Iterable[Interval]) -> float:
    """The seconds that lie in at least one of the intervals."""
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
