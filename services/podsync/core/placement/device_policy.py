"""Decides which devices a container gets: the choice and the hints of the device manager (node.md 4.15).

Keeps no state: what the plugins list, what other active pods have and what the pod's earlier containers were given are
arguments. Of several devices that serve equally well those with the lowest ids are taken.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct, field

from bus.messages.device_plugins import DeviceResource
from services.podsync.core.placement.hint import Hint, Hints, NodeSet, PlacementError, node_sets
from services.podsync.core.placement.pod_placement import ContainerDevices
from shared.model.objects import Object
from shared.podspec.resources import ResourceList, is_sidecar, main_containers, pod_limits, resource_list

DeviceIds = frozenset[str]  # ids of devices of one resource
GivenDevices = Mapping[str, Mapping[str, DeviceIds]]  # container -> resource -> what it was given
_NONE: DeviceIds = frozenset()


class PreferenceQuestion(Struct, frozen=True):
    """Has what the plugin must be asked before the choice (GetPreferredAllocation): which `size` of these devices it
    prefers, with those that are chosen already."""

    resource: str
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


class PreferenceNeededError(Exception):
    """Says that a plugin must be asked before the choice: see `question`."""

    def __init__(self, question: PreferenceQuestion) -> None:
        super().__init__(question.resource)
        self.question = question


class PluginDevices(Struct, frozen=True, kw_only=True):
    """Has what the device plugins list, by resource, and what they have answered to questions for one pod. Without
    `preferences` no plugin is asked."""

    resources: Mapping[str, DeviceResource] = field(default_factory=dict)
    preferences: Mapping[PreferenceQuestion, DeviceIds] | None = None


NO_PLUGINS = PluginDevices()


def is_offered(resource: DeviceResource, taken: Mapping[str, DeviceIds]) -> bool:
    """Return whether the resource is one of a device plugin for new pods. One that was dropped, and of which no pod has
    a device, is to them like a resource of which the node has the amount 0 (node.md 4.15)."""
    return not resource.dropped or bool(taken.get(resource.resource))


def requests_devices(pod: Object, resources: Mapping[str, DeviceResource]) -> bool:
    """Return whether a container of the pod requests a resource of a device plugin."""
    if not resources:
        return False
    limits = ((container.get("resources") or {}).get("limits") or {} for container in main_containers(pod))
    return any(name in resources for listed in limits for name in listed)


class DevicePolicy:
    """Gives devices to containers. `nodes`: the ids of the machine's NUMA nodes; `resources`: what the device plugins
    list. `taken`: by resource, what other active pods and the earlier containers of the same pod have."""

    def __init__(self, nodes: Iterable[int], resources: Mapping[str, DeviceResource]) -> None:
        self._nodes = frozenset(nodes)
        self._resources = resources

    @cached_property
    def _node_sets(self) -> list[NodeSet]:
        return node_sets(self._nodes)

    def requested(self, container: Object, taken: Mapping[str, DeviceIds]) -> dict[str, int]:
        """Return how many devices of each resource that is offered the container requests."""
        return self._counts(resource_list(container, "limits"), taken)

    def allocate(
        self,
        pod: Object,
        container: Object,
        affinity: NodeSet | None,
        taken: Mapping[str, DeviceIds],
        own: GivenDevices,
        preferences: Mapping[PreferenceQuestion, DeviceIds] | None,
    ) -> tuple[ContainerDevices, ...]:
        """Return the devices of the container, by resource. `preferences`: the plugins' answers; None = none is asked.
        Raise PlacementError and PreferenceNeededError."""
        given = []
        for name, count in sorted(self.requested(container, taken).items()):
            reusable = reusable_devices(pod, name, own)
            chosen = self.choose(name, count, affinity, taken, reusable, _NONE if preferences is None else None)
            if isinstance(chosen, PreferenceQuestion) and preferences is not None and chosen in preferences:
                chosen = self.choose(name, count, affinity, taken, reusable, preferences[chosen])
            if isinstance(chosen, PreferenceQuestion):
                raise PreferenceNeededError(chosen)
            given.append(ContainerDevices(resource=name, ids=chosen))
        return tuple(given)

    def hints(self, pod: Object, container: Object, taken: Mapping[str, DeviceIds], own: GivenDevices) -> Hints:
        """Return the sets of NUMA nodes that have the devices for the container; `own`: what its pod's earlier
        containers were given."""
        return {
            name: self._hints(name, count, taken, reusable_devices(pod, name, own))
            for name, count in self.requested(container, taken).items()
        }

    def pod_hints(self, pod: Object, taken: Mapping[str, DeviceIds]) -> Hints:
        """Return the sets of NUMA nodes that have the devices for all containers of the pod."""
        requested = self._counts(pod_limits(pod, overhead=False), taken)
        return {name: self._hints(name, count, taken, _NONE) for name, count in requested.items()}

    def choose(
        self,
        name: str,
        count: int,
        affinity: NodeSet | None,
        taken: Mapping[str, DeviceIds],
        reusable: DeviceIds,
        preferred: DeviceIds | None = None,
    ) -> DeviceIds | PreferenceQuestion:
        """Return `count` devices of the resource, or what to ask its plugin first: the answer is `preferred` of the
        next call, empty where the plugin has none. First go those that the pod's init containers leave (`reusable`),
        then those near the NUMA nodes of `affinity`, then those near others. Raise PlacementError."""
        resource = self._resources.get(name)
        if resource is None or resource.dropped:
            raise PlacementError(f"cannot allocate unregistered device {name}")
        healthy = frozenset(device.id for device in resource.devices if device.healthy)
        if not healthy:
            raise PlacementError(f"no healthy devices present; cannot allocate unhealthy devices {name}")
        chosen = _lowest(reusable, count)
        if len(chosen) == count:
            return chosen
        available = healthy - taken.get(name, _NONE) - reusable
        needed = count - len(chosen)
        if len(available) < needed:
            raise PlacementError(
                f"requested number of devices unavailable for {name}. Requested: {needed}, Available: {len(available)}"
            )
        aligned, unaligned, others = _by_affinity(resource, available, affinity)
        if needed >= len(aligned):
            chosen |= aligned
            order, pool = [available, unaligned, others], available
        else:
            order, pool = [aligned, aligned], aligned
        if len(chosen) == count:
            return chosen
        if not resource.preferred_allocation:
            preferred = _NONE
        if preferred is None:
            return PreferenceQuestion(name, tuple(sorted(pool | chosen)), tuple(sorted(chosen)), count)
        order[0] = order[0] & preferred
        for candidates in order:
            chosen |= _lowest(candidates - chosen, count - len(chosen))
        return chosen

    def _counts(self, limits: ResourceList, taken: Mapping[str, DeviceIds]) -> dict[str, int]:
        return {
            name: amount.base()
            for name, amount in limits.items()
            if amount and name in self._resources and is_offered(self._resources[name], taken)
        }

    def _hints(
        self, name: str, count: int, taken: Mapping[str, DeviceIds], reusable: DeviceIds
    ) -> tuple[Hint, ...] | None:
        devices = self._resources[name].devices
        if not any(device.nodes for device in devices):
            return None
        # Only nodes of the machine count, so that the counters below have few different keys.
        near = {device.id: self._nodes.intersection(device.nodes) for device in devices}
        with_nodes = {device.id for device in devices if device.nodes}
        available = {device.id for device in devices if device.healthy} - taken.get(name, _NONE) - reusable
        if len(available) + len(reusable) < count:
            return ()
        total = Counter(near.values())
        free = Counter(near[each] for each in available)
        kept = Counter(near[each] for each in reusable & with_nodes)
        smallest, fitting = len(self._nodes), []
        for nodes in self._node_sets:
            if _count_near(total, nodes) >= count:
                smallest = min(smallest, len(nodes))
            if _count_near(kept, nodes) == kept.total() and _count_near(free, nodes) + kept.total() >= count:
                fitting.append(nodes)
        return tuple(Hint(nodes, len(nodes) == smallest) for nodes in fitting)


def reusable_devices(pod: Object, resource: str, own: GivenDevices) -> DeviceIds:
    """Return the devices of the resource that earlier containers of the pod leave: those of init containers that are
    no sidecars, unless a later container has taken them over."""
    spec = pod.get("spec") or {}
    left, kept = _NONE, _NONE
    for container in spec.get("initContainers") or ():
        given = own.get(container["name"], {}).get(resource, _NONE)
        if is_sidecar(container):
            kept |= given
        else:
            left |= given
    for container in spec.get("containers") or ():
        kept |= own.get(container["name"], {}).get(resource, _NONE)
    return left - kept


def _by_affinity(
    resource: DeviceResource, available: DeviceIds, affinity: NodeSet | None
) -> tuple[DeviceIds, DeviceIds, DeviceIds]:
    """Return the available devices near these NUMA nodes, those near others only, and those that are near none."""
    if affinity is None:
        return _NONE, _NONE, available
    near = {device.id: affinity.intersection(device.nodes) for device in resource.devices if device.nodes}
    aligned = frozenset(each for each in available if near.get(each))
    unaligned = frozenset(each for each in available if each in near) - aligned
    return aligned, unaligned, available - aligned - unaligned


def _lowest(ids: Iterable[str], count: int) -> DeviceIds:
    return frozenset(sorted(ids)[:count])


def _count_near(groups: Mapping[NodeSet, int], nodes: NodeSet) -> int:
    """Return how many devices are near one of the nodes."""
    return sum(count for near, count in groups.items() if near & nodes)
