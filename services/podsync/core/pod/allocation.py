"""The resources a pod was admitted with: it keeps them, for no running pod is resized yet (pods.md 5.6).

Everything that podsync makes, counts and shows of a pod takes these; what the source asks for instead is only compared.
"""

from typing import Any

from shared.model.objects import Object
from shared.podspec.go_json import go_json
from shared.podspec.resources import resource_list

RESIZE_MESSAGE = "In-place resize is not supported by this node."
RESIZE_PENDING = "PodResizePending"
_LISTS = {"initContainers": "initContainerStatuses", "containers": "containerStatuses"}
_NOT_DONE = (RESIZE_PENDING, "PodResizeInProgress")


def with_allocated_resources(wanted: Object, allocated: Object) -> Object:
    """`wanted` with the resources of `allocated` for the pod and for each container; the very object where they are the
    same amounts."""
    spec, held = wanted.get("spec") or {}, allocated.get("spec") or {}
    if spec == held:
        return wanted
    kept: Object = {} if _same(spec, held) else _with_resources(spec, held)
    for field in _LISTS:
        before = {container.get("name"): container for container in held.get(field) or ()}
        containers = [
            container
            if _same(container, other := before.get(container.get("name"), container))
            else _with_resources(container, other)
            for container in spec.get(field) or ()
        ]
        if any(new is not old for new, old in zip(containers, spec.get(field) or (), strict=True)):
            kept = {**(kept or spec), field: containers}
    return {**wanted, "spec": kept} if kept else wanted


def as_last_shown(pod: Object, status: Object) -> Object:
    """The pod with the resources that its status shows for its containers, where a resize was not done:
    an earlier agent, of which there is no record, has admitted it with those."""
    if not any(c.get("type") in _NOT_DONE and c.get("status") == "True" for c in status.get("conditions") or ()):
        return pod
    spec: Object = dict(pod.get("spec") or {})
    for field, shown in _LISTS.items():
        held = {entry["name"]: entry.get("resources") for entry in status.get(shown) or ()}
        if spec.get(field):
            spec[field] = [_with_shown(container, held.get(container.get("name"))) for container in spec[field]]
    return with_allocated_resources(pod, {**pod, "spec": spec})


def resize_event(wanted: Object, generation: int) -> tuple[str, str, str, str]:
    """The kubelet's Event for a resize that is refused: type, reason, message, container."""
    spec: Any = wanted.get("spec") or {}
    details: Object = {}
    for field in _LISTS:
        if containers := [_described(container) for container in spec.get(field) or ()]:
            details[field] = containers
    if generation:
        details["generation"] = generation
    details["error"] = RESIZE_MESSAGE
    return "Warning", "ResizeInfeasible", f"Pod resize Infeasible: {go_json(details)}", ""


def _same(one: Object, other: Object) -> bool:
    return all(resource_list(one, kind) == resource_list(other, kind) for kind in ("requests", "limits"))


def _with_resources(holder: Object, other: Object) -> Object:
    without = {key: value for key, value in holder.items() if key != "resources"}
    return {**without, "resources": other["resources"]} if "resources" in other else without


def _with_shown(container: Object, shown: object) -> Object:
    if not isinstance(shown, dict) or not all(isinstance(amounts, dict) for amounts in shown.values()):
        return container
    kept = {kind: what for kind, what in (container.get("resources") or {}).items() if kind == "claims"}
    return {**container, "resources": kept | shown}


def _described(container: Object) -> Object:
    given = container.get("resources") or {}
    resources = {kind: given[kind] for kind in ("limits", "requests", "claims") if given.get(kind)}
    return {"name": container.get("name"), "resources": resources}
