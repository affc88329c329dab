"""Has the resources that the node has allocated to a pod, and those that it has not allocated yet (pods.md 5.6).
Everything that podsync makes, counts and shows of a pod uses the allocated resources; others that the source lists are
a resize. Decides nothing about room on the node.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.quantity import parse_quantity
from shared.podspec.go_json import go_json
from shared.podspec.memory_volumes import is_of_memory
from shared.podspec.resources import is_pod_level, main_containers, resource_list

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
RESTART = "RestartContainer"  # a resizePolicy
_LISTS = {"initContainers": "initContainerStatuses", "containers": "containerStatuses"}
Resources = Mapping[str, Any]  # `resources` of a container or of a pod's spec


class Allocation(Struct, frozen=True, kw_only=True):
    """Has the resources of each init and regular container by name, and those of the pod's spec; {} = none. `volumes`:
    the sizeLimit of each memory-backed emptyDir that has one; one that is absent is as the source lists it."""

    containers: Mapping[str, Resources] = field(default_factory=dict)
    pod: Resources = field(default_factory=dict)
    volumes: Mapping[str, Any] = field(default_factory=dict)


class PendingResize(Struct, frozen=True, kw_only=True):
    """Has the resources that the source lists, where they are not the allocated ones. `reason` "" = the node has not
    decided yet."""

    generation: int  # of the pod's object that lists them; 0 = it has none
    wanted: Allocation
    decided: bool = False  # whether reason and message are of this generation
    reason: str = ""  # Deferred or Infeasible
    message: str = ""
    since: float = 0.0  # steady seconds of the first decision, 0 = none yet

    @property
    def is_over(self) -> bool:
        """Whether only another change of the pod can change the decision."""
        return self.decided and self.reason == INFEASIBLE


class ResizeInProgress(Struct, frozen=True, kw_only=True):
    """Has the state of a resize that the node has allocated, and that running containers may not have yet."""

    generation: int  # of the pod's object that listed them
    cgroup_written: bool = False  # whether the pod's cgroup has the resources
    error: str = ""  # of the newest try


def allocation_of(pod: Object) -> Allocation:
    """Return the resources that the pod's spec lists."""
    containers = {str(c.get("name")): c.get("resources") or {} for c in main_containers(pod)}
    spec: Object = pod.get("spec") or {}
    volumes = {str(v.get("name")): v["emptyDir"]["sizeLimit"] for v in spec.get("volumes") or () if _is_limited(v)}
    return Allocation(containers=containers, pod=spec.get("resources") or {}, volumes=volumes)


def with_allocation(wanted: Object, allocation: Allocation) -> Object:
    """Return `wanted` with these resources for the pod and for each container; the same object where the amounts are
    the same."""
    spec: Object = wanted.get("spec") or {}
    kept: Object = {} if same_amounts(spec.get("resources"), allocation.pod) else _with(spec, allocation.pod)
    for kind in _LISTS:
        listed = spec.get(kind) or ()
        held = [allocation.containers.get(str(container.get("name")), {}) for container in listed]
        containers = [
            container if same_amounts(container.get("resources"), own) else _with(container, own)
            for container, own in zip(listed, held, strict=True)
        ]
        if any(new is not old for new, old in zip(containers, listed, strict=True)):
            kept = {**(kept or spec), kind: containers}
    listed = spec.get("volumes") or ()
    volumes = [_with_size(volume, allocation.volumes) for volume in listed]
    if any(new is not old for new, old in zip(volumes, listed, strict=True)):
        kept = {**(kept or spec), "volumes": volumes}
    return {**wanted, "spec": kept} if kept else wanted


def effective_resources(allocation: Allocation, name: str) -> Resources:
    """Return what a container gets: its own resources, and the limits of the pod where it has none."""
    own, limits = allocation.containers.get(name, {}), allocation.pod.get("limits") or {}
    inherited = {name: amount for name, amount in limits.items() if is_pod_level(name)}
    return {**own, "limits": {**inherited, **(own.get("limits") or {})}} if inherited else own


def actuated_after(
    actuated: Mapping[str, Resources], before: Allocation, after: Allocation, pod: Object
) -> Mapping[str, Resources]:
    """Return the actuated resources of containers, by name, where they are not what `after` allocates. `actuated` is
    the same for `before`: a resize to `before` that failed, or that a kill interrupted, may have actuated a part of it.
    `pod` lists `after`."""
    result = {}
    for container in main_containers(pod):
        name = str(container.get("name"))
        held, target = effective_resources(before, name), effective_resources(after, name)
        if name in actuated:
            held = _perhaps_actuated(actuated[name], held, target, container)
        if not same_amounts(held, target):
            result[name] = held
    return result


def _perhaps_actuated(earlier: Resources, later: Resources, target: Resources, container: Object) -> Resources:
    """Return of each amount the one that differs from `target`, so that it is written; the earlier one where both do,
    and of a resource that is never changed without a restart."""
    policies = {entry.get("resourceName"): entry.get("restartPolicy") for entry in container.get("resizePolicy") or ()}
    held = dict(earlier)
    for kind in ("requests", "limits"):
        before, wanted = (resource_list({"resources": each}, kind) for each in (earlier, target))
        amounts = {**(later.get(kind) or {}), **(earlier.get(kind) or {})}
        for name in amounts:
            if before.get(name) == wanted.get(name) and policies.get(name) != RESTART:
                amounts[name] = (later.get(kind) or {}).get(name)
            else:
                amounts[name] = (earlier.get(kind) or {}).get(name)
        held[kind] = {name: amount for name, amount in amounts.items() if amount is not None}
    return held


def as_last_shown(pod: Object, status: Object) -> Allocation | None:
    """Return the resources that the pod's status shows for its containers, where it shows a resize that is not done: an
    earlier agent, which left no record, admitted the pod with them. None = it shows no such resize."""
    conditions = status.get("conditions") or ()
    unfinished = (RESIZE_PENDING, RESIZE_IN_PROGRESS)
    if not any(c.get("type") in unfinished and c.get("status") == "True" for c in conditions):
        return None
    listed = allocation_of(pod)
    containers = dict(listed.containers)
    for kind, shown in _LISTS.items():
        held = {entry["name"]: entry.get("resources") for entry in status.get(shown) or ()}
        for container in (pod.get("spec") or {}).get(kind) or ():
            resources = held.get(container.get("name"))
            if isinstance(resources, dict) and all(isinstance(amounts, dict) for amounts in resources.values()):
                claims = {k: v for k, v in (container.get("resources") or {}).items() if k == "claims"}
                containers[str(container.get("name"))] = claims | resources
    return replace(listed, containers=containers)


def resize_event(pod: Object, what: str, generation: int, error: str = "") -> tuple[str, str, str, str]:
    """Return the kubelet's Event about a resize: type, reason, message, container. `pod` has the resources that it is
    about; `what`: started, completed, error, Deferred or Infeasible."""
    spec: Any = pod.get("spec") or {}
    details: Object = {}
    for kind in _LISTS:
        if containers := [_described(container) for container in spec.get(kind) or ()]:
            details[kind] = containers
    details |= ({"generation": generation} if generation else {}) | ({"error": error} if error else {})
    severity = "Normal" if what in ("started", "completed") else "Warning"
    return severity, f"Resize{what.capitalize()}", f"Pod resize {what}: {go_json(details)}", ""


def same_amounts(first: Resources | None, second: Resources | None) -> bool:
    """Return whether both have the same requests and limits, however the quantities are written."""
    if first == second:
        return True
    pair = {"resources": first}, {"resources": second}
    return all(resource_list(pair[0], kind) == resource_list(pair[1], kind) for kind in ("requests", "limits"))


def resizes_volume(wanted: Object, allocated: Object) -> bool:
    """Return whether a memory-backed volume would get another sizeLimit."""
    held = allocation_of(allocated).volumes
    return any(_with_size(volume, held) is not volume for volume in (wanted.get("spec") or {}).get("volumes") or ())


def _is_limited(volume: Object) -> bool:
    return is_of_memory(volume) and volume["emptyDir"].get("sizeLimit") is not None


def _with_size(volume: Object, sizes: Mapping[str, Any]) -> Object:
    """Return the volume with the size that it has here; the same object where that is the same amount, or none."""
    size = sizes.get(str(volume.get("name")))
    if size is None or not _is_limited(volume):
        return volume
    listed = volume["emptyDir"]["sizeLimit"]
    if listed == size or parse_quantity(listed) == parse_quantity(size):
        return volume
    return {**volume, "emptyDir": {**volume["emptyDir"], "sizeLimit": size}}


def _with(holder: Object, resources: Resources) -> Object:
    without = {key: value for key, value in holder.items() if key != "resources"}
    return {**without, "resources": dict(resources)} if resources else without


def _described(container: Object) -> Object:
    listed = container.get("resources") or {}
    resources = {kind: listed[kind] for kind in ("limits", "requests", "claims") if listed.get(kind)}
    return {"name": container.get("name"), "resources": resources}
