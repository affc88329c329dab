"""The resources that the node has allocated to a pod, and those that it has not allocated yet (pods.md 5.6).

Everything that podsync makes, counts and shows of a pod takes the allocated resources; what the source lists instead
is a resize. Decides nothing about room on the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.podspec.go_json import go_json
from shared.podspec.resources import is_pod_level, main_containers, resource_list

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
RESTART = "RestartContainer"  # a policy of a resource
_LISTS = {"initContainers": "initContainerStatuses", "containers": "containerStatuses"}
Resources = Mapping[str, Any]  # `resources` of a container or of a pod's spec


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """By name what each init and regular container has, and what the pod's spec has for all together; {} = nothing."""

    containers: Mapping[str, Resources] = field(default_factory=dict)
    pod: Resources = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PendingResize:
    """The source lists other resources than the allocated ones. `reason` "" = the node has not decided yet."""

    generation: int  # of the pod's object that lists them; 0 = it has none
    wanted: Allocation
    decided: bool = False  # reason and message are of this generation
    reason: str = ""  # Deferred or Infeasible
    message: str = ""
    since: float = 0.0  # steady seconds of the first decision that the pod waits since, 0 = none yet

    @property
    def is_over(self) -> bool:
        """Whether only another change of the pod can change the decision."""
        return self.decided and self.reason == INFEASIBLE


@dataclass(frozen=True, kw_only=True)
class ResizeInProgress:
    """The node has allocated other resources than the running containers may have been given."""

    generation: int  # of the pod's object that listed them
    cgroup_written: bool = False  # the pod's cgroup has them
    error: str = ""  # of the newest attempt


def allocation_of(pod: Object) -> Allocation:
    """Return the resources that the pod's spec lists."""
    containers = {str(c.get("name")): c.get("resources") or {} for c in main_containers(pod)}
    return Allocation(containers=containers, pod=(pod.get("spec") or {}).get("resources") or {})


def with_allocation(wanted: Object, allocation: Allocation) -> Object:
    """`wanted` with these resources for the pod and for each container; the very object where they are the same
    amounts."""
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
    return {**wanted, "spec": kept} if kept else wanted


def given_to(allocation: Allocation, name: str) -> Resources:
    """Return what a container is given: its own resources, and the limits of the pod where it has none."""
    own, limits = allocation.containers.get(name, {}), allocation.pod.get("limits") or {}
    inherited = {name: amount for name, amount in limits.items() if is_pod_level(name)}
    return {**own, "limits": {**inherited, **(own.get("limits") or {})}} if inherited else own


def actuated_after(
    actuated: Mapping[str, Resources], before: Allocation, after: Allocation, pod: Object
) -> Mapping[str, Resources]:
    """Return what containers were given that is not what `after` allocates. `actuated` is the same for `before`: a
    resize to that which failed, or was cut off by a kill, may have given them a part of it. `pod` lists `after`."""
    found = {}
    for container in main_containers(pod):
        name = str(container.get("name"))
        given, target = given_to(before, name), given_to(after, name)
        if name in actuated:
            given = _perhaps_given(actuated[name], given, target, container)
        if not same_amounts(given, target):
            found[name] = given
    return found


def _perhaps_given(earlier: Resources, later: Resources, target: Resources, container: Object) -> Resources:
    """Of each amount the one that differs from `target`, so that it is written; the earlier one where both do, and of a
    resource that is never changed without a restart."""
    policies = {entry.get("resourceName"): entry.get("restartPolicy") for entry in container.get("resizePolicy") or ()}
    found = dict(earlier)
    for kind in ("requests", "limits"):
        given, wanted = (resource_list({"resources": each}, kind) for each in (earlier, target))
        amounts = {**(later.get(kind) or {}), **(earlier.get(kind) or {})}
        for name in amounts:
            if given.get(name) == wanted.get(name) and policies.get(name) != RESTART:
                amounts[name] = (later.get(kind) or {}).get(name)
            else:
                amounts[name] = (earlier.get(kind) or {}).get(name)
        found[kind] = {name: amount for name, amount in amounts.items() if amount is not None}
    return found


def as_last_shown(pod: Object, status: Object) -> Allocation | None:
    """The resources that the pod's status shows for its containers, where it shows that a resize is not done: an
    earlier agent, of which there is no record, admitted the pod with those. None = it shows no such resize."""
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
    """The kubelet's Event about a resize: type, reason, message, container. `pod` has the resources that it is about;
    `what`: started, completed, error, Deferred or Infeasible."""
    spec: Any = pod.get("spec") or {}
    details: Object = {}
    for kind in _LISTS:
        if containers := [_described(container) for container in spec.get(kind) or ()]:
            details[kind] = containers
    details |= ({"generation": generation} if generation else {}) | ({"error": error} if error else {})
    severity = "Normal" if what in ("started", "completed") else "Warning"
    return severity, f"Resize{what.capitalize()}", f"Pod resize {what}: {go_json(details)}", ""


def same_amounts(one: Resources | None, other: Resources | None) -> bool:
    """Whether both request and limit the same, however it is written."""
    if one == other:
        return True
    pair = {"resources": one}, {"resources": other}
    return all(resource_list(pair[0], kind) == resource_list(pair[1], kind) for kind in ("requests", "limits"))


def _with(holder: Object, resources: Resources) -> Object:
    without = {key: value for key, value in holder.items() if key != "resources"}
    return {**without, "resources": dict(resources)} if resources else without


def _described(container: Object) -> Object:
    given = container.get("resources") or {}
    resources = {kind: given[kind] for kind in ("limits", "requests", "claims") if given.get(kind)}
    return {"name": container.get("name"), "resources": resources}
