"""Decides which devices the Node shows of a resource whose plugin a new process of volume does not know yet. Pure.

Many plugins serve anew when volume replaces the agent's socket, and are away for a moment. The Node keeps what it shows
meanwhile, so that a restart of volume does not change it.
"""

from collections.abc import Mapping
from dataclasses import replace

from bus.messages.device_plugins import DeviceResource

HOLD_SECONDS = 10.0  # for which the devices of the process before count; the kubelet writes the Node every 10 s


class ShownDevices:
    """Has what is shown of each resource. `due`: the moment at which that changes by itself; None = it does not."""

    def __init__(self) -> None:
        self.due: float | None = None
        self._listed: dict[str, DeviceResource] = {}  # by name, each as it was shown when it last had devices
        self._unlisted: dict[str, float] = {}  # by name, since when volume knows no devices of it

    def take(self, resources: Mapping[str, DeviceResource], now: float) -> list[DeviceResource]:
        """Return what is shown at the moment `now` where volume publishes these resources."""
        self._unlisted = {
            name: self._unlisted.get(name, now)
            for name, resource in resources.items()
            if name in self._listed and not (resource.connected or resource.dropped or resource.devices)
        }
        ends = [since + HOLD_SECONDS for since in self._unlisted.values()]
        self.due = min((end for end in ends if end > now), default=None)
        shown = [self._shown(resource, now) for resource in resources.values()]
        self._listed = {resource.resource: resource for resource in shown if resource.devices}
        return shown

    def _shown(self, resource: DeviceResource, now: float) -> DeviceResource:
        since = self._unlisted.get(resource.resource)
        if since is None:
            return resource
        before = self._listed[resource.resource]
        if now < since + HOLD_SECONDS:
            return before
        return replace(resource, devices=tuple(replace(device, healthy=False) for device in before.devices))
