"""Decides whether the node can allocate what a resize lists, and which pending resize comes first (pods.md 5.6).
Pure."""

from msgspec import Struct

from services.podsync.core.admission.node_view import NodeView
from services.podsync.core.admission.predicates import in_unit
from services.podsync.core.admission.taken import Taken
from services.podsync.core.admission.verdict import admit
from services.podsync.core.placement.pod_placement import PodPlacement
from services.podsync.core.pod.allocation import DEFERRED, INFEASIBLE, resizes_volume, same_amounts
from services.podsync.core.pod.gated_fields import POD_LEVEL_RESIZE, RESIZE_INIT_CONTAINERS, RESIZE_MEMORY_VOLUMES
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.quantity import ZERO
from shared.podspec.containers import init_containers
from shared.podspec.pod_source import is_critical
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import (
    is_sidecar,
    main_containers,
    parse_resources,
    pod_level,
    pod_requests,
    resource_list,
)

SWAP = "In-place resize of containers with swap is not supported."
STATIC_CPUS = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
STATIC_MEMORY = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
POD_LEVEL = f"{POD_LEVEL_RESIZE} is disabled"
INIT_CONTAINERS = f"{RESIZE_INIT_CONTAINERS} is disabled"
VOLUMES = f"{RESIZE_MEMORY_VOLUMES} is disabled"
_COUNTED = ("memory", "cpu")


class ResizeVerdict(Struct, frozen=True, kw_only=True):
    """Has the decision on a resize. `reason` "" = the node allocates it once the victims have stopped; else Deferred or
    Infeasible."""

    reason: str = ""
    message: str = ""
    victims: tuple[str, ...] = ()  # UIDs
    lacking: str = ""  # the first resource for which they are preempted


def decide_resize(
    wanted: Object, allocated: Object, phase: str, view: NodeView, taken: Taken, placement: PodPlacement
) -> ResizeVerdict:
    """Decide a resize. `wanted` and `allocated`: the pod with the resources it lists and with those it has; `phase`:
    the pod's phase in the API server; `taken`: what the pods of the node take, this one with `allocated` among them;
    `placement`: the pod's, which no resize changes."""
    if message := _infeasible(wanted, allocated, view):
        return ResizeVerdict(reason=INFEASIBLE, message=message)
    view = replace(view, preempts=view.preempts_for_resizes)
    verdict = admit(wanted, phase, view, taken.without(allocated), placement=placement)
    if verdict.reason:
        return ResizeVerdict(reason=DEFERRED, message=verdict.message)
    return ResizeVerdict(victims=verdict.victims, lacking=verdict.lacking)


def order(wanted: Object, allocated: Object, since: float) -> tuple[bool, int, bool, bool, float]:
    """Return the sort key of a pending resize. `since`: steady seconds of its first decision, 0 = none yet."""
    before, after = pod_requests(allocated), pod_requests(wanted)
    increases = any(after.get(name, ZERO) > before.get(name, ZERO) for name in _COUNTED)
    priority = (wanted.get("spec") or {}).get("priority")
    guaranteed = qos_class(wanted) is QosClass.GUARANTEED
    return increases, -priority if isinstance(priority, int) else 0, not guaranteed, not since, since


def _infeasible(wanted: Object, allocated: Object, view: NodeView) -> str:
    """Return why the node will never allocate it, "" = it may."""
    if view.facts.limited_swap and _resizes_swap(wanted, allocated):
        return SWAP
    if message := _of_placement(wanted, allocated, view):
        return message
    if POD_LEVEL_RESIZE in view.facts.gates_off and any(
        pod_level(wanted, kind) != pod_level(allocated, kind) for kind in ("requests", "limits")
    ):
        return POD_LEVEL
    if RESIZE_INIT_CONTAINERS in view.facts.gates_off and _resizes_init_container(wanted, allocated):
        return INIT_CONTAINERS
    if RESIZE_MEMORY_VOLUMES in view.facts.gates_off and resizes_volume(wanted, allocated):
        return VOLUMES
    allocatable, requests = parse_resources(view.allocatable), pod_requests(wanted)
    for name in _COUNTED:
        if name in requests and name in allocatable and requests[name] > allocatable[name]:
            requested, capacity = in_unit(name, requests[name]), in_unit(name, allocatable[name])
            return f"Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
    return ""


def _of_placement(wanted: Object, allocated: Object, view: NodeView) -> str:
    """Return why a static policy permits no resize, "" = it does: a Guaranteed pod keeps the CPU and memory with which
    it was placed."""
    placer = view.facts.placer
    if placer is None or qos_class(allocated) is not QosClass.GUARANTEED:
        return ""
    if placer.static_cpus and _changes(wanted, allocated, "cpu", as_a_whole=placer.pod_level):
        return STATIC_CPUS
    changes_memory = placer.static_memory and _changes(wanted, allocated, "memory", as_a_whole=placer.pod_level)
    return STATIC_MEMORY if changes_memory else ""


def _changes(wanted: Object, allocated: Object, resource: str, *, as_a_whole: bool) -> bool:
    """Return whether a container would get another amount of the resource, or the pod `as_a_whole`."""
    kinds = ("requests", "limits")
    if as_a_whole and any(pod_level(wanted, k).get(resource) != pod_level(allocated, k).get(resource) for k in kinds):
        return True
    before = {str(container.get("name")): container for container in main_containers(allocated)}
    return any(
        resource_list(container, kind).get(resource)
        != resource_list(before.get(str(container.get("name")), {}), kind).get(resource)
        for container in main_containers(wanted)
        for kind in kinds
    )


def _resizes_init_container(wanted: Object, allocated: Object) -> bool:
    """Return whether an init container that is no sidecar would get other resources."""
    before = {str(container.get("name")): container for container in init_containers(allocated)}
    return any(
        not same_amounts(before.get(str(container.get("name")), {}).get("resources"), container.get("resources"))
        for container in init_containers(wanted)
        if not is_sidecar(container)
    )


def _resizes_swap(wanted: Object, allocated: Object) -> bool:
    """Return whether a container that may swap would get another memory request without a restart."""
    before = {str(container.get("name")): container for container in main_containers(allocated)}
    for container in main_containers(wanted):
        held = before.get(str(container.get("name")), {})
        requests = [resource_list(spec, "requests").get("memory", ZERO) for spec in (container, held)]
        policy = {entry.get("resourceName"): entry.get("restartPolicy") for entry in held.get("resizePolicy") or ()}
        if requests[0] == requests[1] or policy.get("memory") == "RestartContainer":
            continue
        if _may_swap(wanted, container) or _may_swap(allocated, held):
            return True
    return False


def _may_swap(pod: Object, container: Object) -> bool:
    """Return whether the container gets swap with swapBehavior LimitedSwap (node.md 4.13)."""
    request = resource_list(container, "requests").get("memory")
    if not request or qos_class(pod) is not QosClass.BURSTABLE or is_critical(pod):
        return False
    return request != resource_list(container, "limits").get("memory")
