"""Gives devices to the containers of one pod, beside the pods and containers that have some already. Keeps no state."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from services.podsync.core.placement.device_policy import DeviceIds, DevicePolicy, PluginDevices
from services.podsync.core.placement.hint import Hints, NodeSet
from services.podsync.core.placement.pod_placement import ContainerDevices, PodPlacement
from shared.model.objects import Object


class DevicesOfPod(Struct, frozen=True):
    """Gives devices to the containers of one pod. `taken`: what the other pods have."""

    policy: DevicePolicy
    taken: Mapping[str, DeviceIds]
    plugins: PluginDevices

    def hints(self, pod: Object, container: Object, own: PodPlacement) -> Hints:
        """Return the sets of NUMA nodes that have the devices for the container; `own`: the placement so far."""
        return self.policy.hints(pod, container, self._taken_beside(own), given_devices(own))

    def pod_hints(self, pod: Object) -> Hints:
        """Return the sets of NUMA nodes that have the devices for all containers of the pod."""
        return self.policy.pod_hints(pod, self.taken)

    def allocate(
        self, pod: Object, container: Object, affinity: NodeSet | None, own: PodPlacement
    ) -> tuple[ContainerDevices, ...]:
        """Return the devices of the container. Raise PlacementError and PreferenceNeededError."""
        taken, preferences = self._taken_beside(own), self.plugins.preferences
        return self.policy.allocate(pod, container, affinity, taken, given_devices(own), preferences)

    def _taken_beside(self, own: PodPlacement) -> dict[str, DeviceIds]:
        """Return what the other pods and the earlier containers of the same pod have."""
        taken = dict(self.taken)
        for resource, ids in taken_devices((own,)).items():
            taken[resource] = taken.get(resource, frozenset()) | ids
        return taken


def given_devices(placement: PodPlacement) -> dict[str, dict[str, DeviceIds]]:
    """Return what the containers of the pod have: container -> resource -> devices."""
    return {
        name: {of.resource: of.ids for of in given.devices}
        for name, given in placement.containers.items()
        if given.devices
    }


def taken_devices(placements: Iterable[PodPlacement]) -> dict[str, DeviceIds]:
    """Return what the containers of these pods have: resource -> devices."""
    taken: dict[str, set[str]] = {}
    for placement in placements:
        for given in placement.containers.values():
            for of in given.devices:
                taken.setdefault(of.resource, set()).update(of.ids)
    return {resource: frozenset(ids) for resource, ids in taken.items()}
