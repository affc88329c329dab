"""Computes `allocatedResourcesStatus` of a container's status: the health of the devices that it has (node.md 4.15).
Like the kubelet's, only statuses of regular containers have it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from bus.messages.device_plugins import DeviceResource
from services.podsync.core.placement.pod_placement import ContainerDevices

FIELD = "allocatedResourcesStatus"
HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"

Json = dict[str, Any]


def with_device_status(
    status: Json, before: Json, given: Iterable[ContainerDevices], resources: Mapping[str, DeviceResource]
) -> Json:
    """Return the container's status with the health of its devices as their plugins report it. A plugin that restarts
    changes nothing: until it is connected again, or has not been for so long that the node has none of its devices any
    more, the health that the status showed `before` stays."""
    shown = {
        (of_resource.get("name"), device.get("resourceID")): device.get("health")
        for of_resource in before.get(FIELD) or ()
        for device in of_resource.get("resources") or ()
    }
    devices = sorted(given, key=lambda each: each.resource)
    return status | {FIELD: [_of_resource(each, resources.get(each.resource), shown) for each in devices]}


def _of_resource(given: ContainerDevices, resource: DeviceResource | None, shown: Mapping[Any, Any]) -> Json:
    listed: dict[str, str] = {}
    if resource is not None and resource.connected:
        listed = {device.id: HEALTHY if device.healthy else UNHEALTHY for device in resource.devices}
    elif resource is None or not resource.dropped:
        listed = {device: shown.get((given.resource, device)) or UNKNOWN for device in given.ids}
    devices = [{"resourceID": device, "health": listed.get(device, UNKNOWN)} for device in sorted(given.ids)]
    return {"name": given.resource, "resources": devices}
