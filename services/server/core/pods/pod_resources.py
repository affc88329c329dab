"""Decides which pods and containers the PodResources API lists (server.md 16, node.md 8.3), from desired pods. What
the containers have alone comes from `pods.admitted`, the NUMA nodes of their devices from `devices.resources`, and
their resource claims from `claims.prepared`."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bus.messages.device_plugins import DeviceResource
from bus.messages.podsync import AdmittedPod, NumaMemory
from bus.messages.resource_claims import PodClaims
from services.server.core.pods.claim_resources import ClaimEntry, claim_entries
from shared.model.cpu_list import parse_cpus
from shared.model.frozen_copy import replace
from shared.model.objects import Object, name, namespace

ENDED = ("Succeeded", "Failed")  # phases of pods that are no longer active

# resource -> id of a device -> the ids of the NUMA nodes that it is near to
DeviceNodes = Mapping[str, Mapping[str, tuple[int, ...]]]


class DeviceEntry(Struct, frozen=True):
    """Has one device and one NUMA node that it is near to; None = its plugin names none."""

    resource: str
    id: str
    node: int | None


class ContainerEntry(Struct, frozen=True):
    """Has one container with the CPUs, the memory and the devices that it has alone, and its resource claims."""

    name: str
    cpus: tuple[int, ...] = ()
    memory: tuple[NumaMemory, ...] = ()
    devices: tuple[DeviceEntry, ...] = ()
    claims: tuple[ClaimEntry, ...] = ()


class PodEntry(Struct, frozen=True):
    """Has one pod with its containers, restartable init containers first. `cpus` and `memory`: what a pod with
    resources of its own has as a whole; what its containers have are parts of it."""

    name: str
    namespace: str
    containers: tuple[ContainerEntry, ...]
    cpus: tuple[int, ...] = ()
    memory: tuple[NumaMemory, ...] = ()


def is_active(status: Object) -> bool:
    """Return whether a pod of this status has not ended."""
    return status.get("phase") not in ENDED


def pod_entry(
    pod: Object, admitted: AdmittedPod | None, nodes: DeviceNodes, claims: PodClaims | None = None
) -> PodEntry:
    """Return the entry of a pod; `admitted`: what podsync gave it, None = nothing yet; `claims`: its resource claims,
    None = it has none. A device that its plugin does not list (any more) has no NUMA node."""
    spec = pod.get("spec") or {}
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    containers = (*sidecars, *(spec.get("containers") or ()))
    entries = (
        replace(_container_entry(str(each.get("name")), admitted, nodes), claims=claim_entries(each, claims))
        for each in containers
    )
    whole = (cpu_ids(admitted.pod_cpus), admitted.pod_memory) if admitted is not None else ((), ())
    return PodEntry(name(pod), namespace(pod), tuple(entries), *whole)


def cpu_ids(listed: str) -> tuple[int, ...]:
    """Return the ids of a list of CPUs, in ascending order."""
    return tuple(sorted(parse_cpus(listed) or ()))


def nodes_of(resource: DeviceResource) -> dict[str, tuple[int, ...]]:
    """Return the ids of the NUMA nodes of each device, by id of the device."""
    return {device.id: device.nodes for device in resource.devices}


def allocatable_devices(resources: Iterable[DeviceResource]) -> list[DeviceEntry]:
    """Return the entries of the healthy devices, whether or not a container has them."""
    listed = ((resource.resource, device) for resource in resources for device in resource.devices)
    return [entry for name, device in listed if device.healthy for entry in _entries(name, device.id, device.nodes)]


def _container_entry(container: str, admitted: AdmittedPod | None, nodes: DeviceNodes) -> ContainerEntry:
    if admitted is None:
        return ContainerEntry(container)
    given = ((each.resource, one) for each in admitted.devices.get(container, ()) for one in each.ids)
    return ContainerEntry(
        container,
        cpu_ids(admitted.cpus.get(container, "")),
        admitted.memory.get(container, ()),
        tuple(entry for name, one in given for entry in _entries(name, one, nodes.get(name, {}).get(one, ()))),
    )


def _entries(resource: str, device: str, nodes: tuple[int, ...]) -> list[DeviceEntry]:
    return [DeviceEntry(resource, device, node) for node in nodes or (None,)]
