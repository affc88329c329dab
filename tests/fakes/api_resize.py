"""The subresource `resize` of a pod, as API servers since 1.33 have it: what it changes and what it refuses. Pure."""

from typing import Any

from shared.model.objects import Object
from shared.podspec.qos import compute_qos_class
from shared.podspec.resources import is_sidecar

RESIZED = ("cpu", "memory")
_CONTAINERS = ("initContainers", "containers")
_POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"
_INIT_CONTAINERS = "InPlacePodVerticalScalingInitContainers"


class RefusedError(Exception):
    """The resize is invalid; the text names the field and the reason."""


def resized(present: Object, sent: Object) -> Object:
    """Return the pod with the CPU and memory that `sent` lists, and nothing else of it. Raises RefusedError."""
    spec = dict(present["spec"])
    if _without_resources(sent.get("spec") or {}) != _without_resources(spec):
        raise RefusedError("spec: Forbidden: only cpu and memory resources are mutable")
    for kind in _CONTAINERS:
        if kind in spec:
            spec[kind] = [
                _with(before, after, f"spec.{kind}[{index}]")
                for index, (before, after) in enumerate(zip(spec[kind], sent["spec"][kind], strict=True))
            ]
    spec = _with(spec, sent["spec"], "spec")
    pod = {**present, "spec": spec}
    qos = compute_qos_class(pod)
    if str(qos) != present.get("status", {}).get("qosClass", str(qos)):
        raise RefusedError(
            f'spec: Invalid value: "{qos}": Pod QOS Class may not change as a result of resizing',
        )
    return pod


def needed_features(before: Object, after: Object) -> list[str]:
    """Return the features that the pod's node must declare for this change of resources."""
    needed = [_POD_LEVEL] if before["spec"].get("resources") != after["spec"].get("resources") else []
    pairs = zip(before["spec"].get("initContainers") or (), after["spec"].get("initContainers") or (), strict=True)
    if any(one.get("resources") != other.get("resources") and not is_sidecar(one) for one, other in pairs):
        needed.append(_INIT_CONTAINERS)
    return needed


def resources_of(pod: Object) -> list[Any]:
    """What no other request than one to `resize` may change."""
    spec = pod.get("spec") or {}
    containers = [container.get("resources") or {} for kind in _CONTAINERS for container in spec.get(kind) or ()]
    return [spec.get("resources") or {}, *containers]


def _with(before: Object, after: Object, path: str) -> Object:
    """The container or spec `before` with the resources of `after`."""
    held, given = before.get("resources") or {}, after.get("resources") or {}
    if held == given:
        return before
    for kind in ("requests", "limits"):
        old, new = held.get(kind) or {}, given.get(kind) or {}
        if removed := [name for name in old if name not in new]:
            raise RefusedError(f"{path}.resources.{kind}[{removed[0]}]: Forbidden: resource {kind} cannot be removed")
        if any(old.get(name) != new.get(name) for name in {*old, *new} if name not in RESIZED):
            raise RefusedError("spec: Forbidden: only cpu and memory resources are mutable")
    return {**before, "resources": given}


def _without_resources(spec: Object) -> Object:
    kept = {key: value for key, value in spec.items() if key != "resources"}
    for kind in _CONTAINERS:
        if kind in kept:
            kept[kind] = [{k: v for k, v in container.items() if k != "resources"} for container in kept[kind]]
    return kept
