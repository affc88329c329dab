"""Decides which devices the Node shows of a resource whose plugin is not connected after a restart of volume. Pure.

Many plugins serve anew when volume replaces the agent's socket, and are away for a moment. The Node keeps what it shows
meanwhile, so that a restart of volume does not change it.
"""

from collections.abc import Mapping

from bus.messages.device_plugins import DeviceResource
from shared.model.frozen_copy import replace

HOLD_SECONDS = 10.0  # after the start of volume; the kubelet writes the Node every 10 s
Shown = Mapping[str, DeviceResource]  # by the name of the resource


def shown_devices(resources: Shown, before: Shown, *, is_held: bool) -> Shown:
    """Return what is shown where volume publishes these resources. `before`: each resource as it was shown when it last
    had devices; `is_held`: volume started less than HOLD_SECONDS ago."""
    return {name: _shown(resource, before.get(name), is_held=is_held) for name, resource in resources.items()}


def _shown(resource: DeviceResource, before: DeviceResource | None, *, is_held: bool) -> DeviceResource:
    if resource.connected or resource.dropped or before is None:
        return resource
    if is_held:
        return before
    if resource.devices:
        return resource
    # This process of volume has received no list of the plugin.
    return replace(resource, devices=tuple(replace(device, healthy=False) for device in before.devices))
