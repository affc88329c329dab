"""Computes `allocatedResourcesStatus` of a container's status: the health of the devices that it has (node.md 4.15).
Like the kubelet's, only statuses of regular containers have it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from services.podsync.core.placement.pod_placement import ContainerDevices
from services.podsync.core.placement.reported_devices import Reported, ReportedDevices

FIELD = "allocatedResourcesStatus"
HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"

Json = dict[str, Any]


def with_device_status(status: Json, before: Json, given: Iterable[ContainerDevices], reported: Reported) -> Json:
    """Return the container's status with the health of its devices as their plugins report it. A plugin that restarts
    changes nothing: the health that the status showed `before` stays until the plugin is connected again, or until the
    node has none of its devices any more because it was away for too long."""
    shown = {
        (of_resource.get("name"), device.get("resourceID")): device.get("health")
        for of_resource in before.get(FIELD) or ()
        for device in of_resource.get("resources") or ()
    }
    devices = sorted(given, key=lambda each: each.resource)
    return status | {FIELD: [_of_resource(each, reported.get(each.resource), shown) for each in devices]}


def _of_resource(given: ContainerDevices, reported: ReportedDevices | None, shown: Mapping[Any, Any]) -> Json:
    is_awaited = reported is None or not (reported.resource.connected or reported.resource.dropped)

    def health(device: str) -> str:
        if is_awaited:
            return shown.get((given.resource, device)) or UNKNOWN
        healthy = reported.healthy.get(device) if reported is not None else None
        return UNKNOWN if healthy is None else HEALTHY if healthy else UNHEALTHY

    devices = [{"resourceID": device, "health": health(device)} for device in sorted(given.ids)]
    return {"name": given.resource, "resources": devices}
