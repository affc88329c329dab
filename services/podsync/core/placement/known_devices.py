"""Keeps the resources of device plugins as volume has published them, and the health of their devices by id. Pure."""

from collections.abc import Mapping

from bus.messages.device_plugins import DeviceResource
from services.podsync.core.placement.reported_devices import Reported, reported_devices


class KnownDevices:
    """Has the resources by name; `resources` and `reported` are replaced at each change."""

    def __init__(self) -> None:
        self.resources: Mapping[str, DeviceResource] = {}
        self.reported: Reported = {}
        self.is_complete = False  # whether volume has published all of them since this process started

    def put(self, name: str, resource: DeviceResource | None) -> bool:
        """Take in a resource, None = it is gone. Return whether anything has changed."""
        if self.resources.get(name) == resource:
            return False
        others = {other: known for other, known in self.resources.items() if other != name}
        self.resources = others if resource is None else {**others, name: resource}
        self.reported = reported_devices(self.resources, self.reported)
        return True
