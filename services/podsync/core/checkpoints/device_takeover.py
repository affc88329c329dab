"""Turns the file of the device manager into devices of containers, and devices into the file (node.md 4.14).

The answer of a plugin to Allocate is bytes of a message in the file; the caller converts them.
"""

from collections.abc import Callable, Iterator, Mapping

from bus.messages.device_plugins import MAX_DEVICES, MAX_RESOURCES, AllocatedDevices, DeviceResource
from services.podsync.core.checkpoints import device_state
from services.podsync.core.checkpoints.device_state import NO_NODE, DeviceState
from services.podsync.core.placement.pod_placement import ContainerDevices, PodPlacement

MAX_SHOWN_CHARACTERS = 64  # of a name in a line

Given = dict[str, dict[str, tuple[ContainerDevices, ...]]]  # pod UID -> container -> its devices by resource


def devices_of(
    state: DeviceState, read_answer: Callable[[bytes], AllocatedDevices | None]
) -> tuple[Given, tuple[str, ...]]:
    """Return the devices of each container that the file names, and a line about each entry that has more devices, or
    is of more resources, than a pod's record can have. `read_answer` returns None for bytes that are no answer: the
    plugin is asked again."""
    found: Given = {}
    refused = []
    for entry in state.allocated:
        ids = frozenset(each for listed in entry.devices.values() for each in listed)
        if not (ids and entry.pod_uid and entry.container and entry.resource):
            continue
        of_pod = found.get(entry.pod_uid, {})
        others = [other for other in of_pod.get(entry.container, ()) if other.resource != entry.resource]
        if len(ids) > MAX_DEVICES or len(others) >= MAX_RESOURCES:
            container, pod = entry.container[:MAX_SHOWN_CHARACTERS], entry.pod_uid[:MAX_SHOWN_CHARACTERS]
            owner = f"container {container!r} of pod {pod!r}"
            refused.append(f"{owner} has {len(ids)} devices of a resource, beside {len(others)} other resources")
            continue
        given = ContainerDevices(resource=entry.resource, ids=ids, setup=read_answer(entry.answer or b""))
        in_order = tuple(sorted((*others, given), key=lambda each: each.resource))
        found[entry.pod_uid] = {**of_pod, entry.container: in_order}
    return found, tuple(refused)


def device_state_of(
    placements: Mapping[str, PodPlacement],
    resources: Mapping[str, DeviceResource],
    write_answer: Callable[[AllocatedDevices], bytes],
) -> DeviceState:
    """Return the content of the file: the devices that plugins have prepared, and those that are healthy. A resource
    whose plugin has not come back is not named, as in the Go kubelet's file."""
    near = {
        name: {device.id: device.nodes or (NO_NODE,) for device in resource.devices}
        for name, resource in resources.items()
    }
    return DeviceState(
        allocated=tuple(_entries(placements, near, write_answer)),
        registered={
            name: tuple(device.id for device in resource.devices if device.healthy)
            for name, resource in sorted(resources.items())
            if not resource.dropped
        },
    )


def _entries(
    placements: Mapping[str, PodPlacement],
    near: Mapping[str, Mapping[str, tuple[int, ...]]],
    write_answer: Callable[[AllocatedDevices], bytes],
) -> Iterator[device_state.ContainerDevices]:
    for uid, placement in sorted(placements.items()):
        for container, placed in sorted(placement.containers.items()):
            for given in placed.devices:
                if given.setup is not None:
                    yield device_state.ContainerDevices(
                        pod_uid=uid,
                        container=container,
                        resource=given.resource,
                        devices=_by_node(given, near.get(given.resource, {})),
                        answer=write_answer(given.setup),
                    )


def _by_node(given: ContainerDevices, near: Mapping[str, tuple[int, ...]]) -> dict[int, tuple[str, ...]]:
    """Return the ids of the devices by NUMA node; a device near several nodes is named for each."""
    found: dict[int, list[str]] = {}
    for name in sorted(given.ids):
        for node in near.get(name, (NO_NODE,)):
            found.setdefault(node, []).append(name)
    return {node: tuple(found[node]) for node in sorted(found)}
