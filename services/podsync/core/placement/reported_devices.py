"""Has the health of devices as their plugins report it. It is a mapping by id, because a resource may have 10 000
devices and each pod that has some looks for its own at every event.
"""

from collections.abc import Mapping

from msgspec import Struct

from bus.messages.device_plugins import DeviceResource


class ReportedDevices(Struct, frozen=True):
    """Has the health of the devices of one resource."""

    resource: DeviceResource
    healthy: Mapping[str, bool]  # by id; empty while the plugin is not connected, for it reports nothing then


Reported = Mapping[str, ReportedDevices]  # by the name of the resource


def reported_devices(resources: Mapping[str, DeviceResource], before: Reported) -> Reported:
    """Return the devices of these resources. `before`: the last result; what it has of unchanged resources is kept."""
    reported = {}
    for name, resource in resources.items():
        known = before.get(name)
        if known is None or known.resource is not resource:
            listed = resource.devices if resource.connected else ()
            known = ReportedDevices(resource, {device.id: device.healthy for device in listed})
        reported[name] = known
    return reported
