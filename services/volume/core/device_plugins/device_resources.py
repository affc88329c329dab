"""Decides which resources the device plugins of this node have, as they register, list devices and end; pure
(node.md 4.15).

A resource stays when the connection to its plugin ends: its devices are unhealthy then, and after 5 minutes the
resource is dropped. Its name stays in this process, because the Node shows it with the amount 0. Times are seconds of
one monotonic clock, except `wall`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from bus.messages.device_plugins import MAX_RESOURCES, Device, DeviceResource
from services.volume.core.device_plugins.plugin_checks import UnusableDevicesError
from shared.model.frozen_copy import replace

GRACE_SECONDS = 300.0  # for a plugin that restarts


class PluginOptions(Struct, frozen=True):
    """Has the answer to GetDevicePluginOptions."""

    pre_start_required: bool = False
    preferred_allocation: bool = False


class PluginSocket(Struct, frozen=True):
    """Has the paths of a plugin's sockets. `endpoint` "": none is known. `registry`: the one below `plugins_registry`
    through which the plugin registered; "" = it registered at the agent's socket."""

    endpoint: str
    registry: str = ""


@dataclass
class _Resource:
    socket: PluginSocket
    registration: int
    shown: DeviceResource
    ended: float  # when the connection ended, or when its first attempt began
    awaited: bool  # it is of an earlier process, and the attempt to connect again has no outcome yet


class DeviceResources:
    """Has the resources by name. Call `registered` for each registration that was accepted, `listed` for each list of
    devices, `ended` where the connection ends or cannot be made, and `drop` at the moment that `next_drop` returns.

    A registration has a number, with which its outcomes are reported: those of one that was replaced are ignored.
    """

    def __init__(self) -> None:
        self._resources: dict[str, _Resource] = {}
        self._registrations = 0

    def restored(self, sockets: Mapping[str, PluginSocket], now: float, wall: float) -> None:
        """Add the resources that plugins had registered in an earlier process, with their sockets. A plugin whose
        socket is not known must register again."""
        for resource, socket in list(sockets.items())[:MAX_RESOURCES]:
            self.registered(resource, socket, now, wall)
            self._resources[resource].awaited = bool(socket.endpoint)

    def registered(self, resource: str, socket: PluginSocket, now: float, wall: float) -> int:
        """Note the plugin's socket, which replaces an earlier one, and return the number of the registration. The
        devices stay as they are until the new plugin has listed its own. Raises UnusableDevicesError where there are
        too many resources."""
        known = self._resources.get(resource)
        if known is None:
            self._make_room()
            shown = DeviceResource(resource=resource, connected=False, since=wall, error="it has not connected yet")
            known = self._resources[resource] = _Resource(socket, 0, shown, now, awaited=False)
        elif not known.shown.connected:
            known.ended = now
            known.shown = replace(known.shown, dropped=False, error="it has registered, but has listed no devices yet")
        self._registrations += 1
        known.socket, known.registration = socket, self._registrations
        return self._registrations

    def listed(
        self, resource: str, registration: int, options: PluginOptions, devices: tuple[Device, ...], wall: float
    ) -> None:
        """Replace the devices of a resource by those that its plugin, which is connected, has listed."""
        known = self._current(resource, registration)
        if known is None:
            return
        known.awaited = False
        known.shown = DeviceResource(
            resource=resource,
            connected=True,
            since=known.shown.since if known.shown.connected else wall,
            pre_start_required=options.pre_start_required,
            preferred_allocation=options.preferred_allocation,
            devices=_with_since(devices, known.shown.devices, wall),
        )

    def ended(self, resource: str, registration: int, error: str, now: float, wall: float) -> None:
        """Note that the connection has ended, could not be made, or has brought no list: every device is unhealthy."""
        known = self._current(resource, registration)
        if known is None:
            return
        known.awaited = False
        shown = known.shown
        if shown.connected:
            known.ended = now
            unhealthy = tuple(replace(device, healthy=False) for device in shown.devices)
            devices = _with_since(unhealthy, shown.devices, wall)
            shown = replace(shown, connected=False, since=wall, devices=devices)
        known.shown = replace(shown, error=error)

    def deregistered(self, resource: str, endpoint: str, now: float, wall: float) -> bool:
        """End the registration, if it is still that of this socket; return whether it was."""
        known = self._resources.get(resource)
        if known is None or known.socket.endpoint != endpoint:
            return False
        self.ended(resource, known.registration, "its socket below plugins_registry is gone", now, wall)
        known.registration, known.socket = 0, PluginSocket("")
        return True

    def drop(self, now: float) -> list[str]:
        """Drop the resources whose plugins have not been connected for 5 minutes, and return their names."""
        due = [
            name
            for name, known in self._resources.items()
            if not known.shown.connected and not known.shown.dropped and now - known.ended >= GRACE_SECONDS
        ]
        for name in due:
            known = self._resources[name]
            known.registration, known.awaited = 0, False
            known.shown = replace(known.shown, dropped=True, devices=())
        return due

    def next_drop(self) -> float | None:
        """Return when the next grace ends; None = none is running."""
        shown = self._resources.values()
        return min((k.ended + GRACE_SECONDS for k in shown if not (k.shown.connected or k.shown.dropped)), default=None)

    def shown(self) -> dict[str, DeviceResource]:
        """Return what is published, by resource."""
        return {name: known.shown for name, known in self._resources.items()}

    def sockets(self) -> dict[str, PluginSocket]:
        """Return the sockets of each resource's plugin, which a later process needs: all but those of resources that
        have been dropped, whose plugins must register again."""
        return {name: known.socket for name, known in self._resources.items() if not known.shown.dropped}

    def registration(self, resource: str) -> int:
        """Return the number of the registration that counts; 0 = there is none."""
        known = self._resources.get(resource)
        return known.registration if known is not None else 0

    @property
    def complete(self) -> bool:
        """Return whether each plugin of an earlier process is connected again, or could not be reached."""
        return not any(known.awaited for known in self._resources.values())

    def _current(self, resource: str, registration: int) -> _Resource | None:
        known = self._resources.get(resource)
        return known if known is not None and registration and known.registration == registration else None

    def _make_room(self) -> None:
        """Forget the resource that has been dropped for longest, where there are too many."""
        if len(self._resources) < MAX_RESOURCES:
            return
        dropped = [name for name, known in self._resources.items() if known.shown.dropped]
        if not dropped:
            raise UnusableDevicesError(f"{MAX_RESOURCES} resources have device plugins, and no more are accepted")
        del self._resources[min(dropped, key=lambda name: self._resources[name].ended)]


def _with_since(devices: tuple[Device, ...], before: tuple[Device, ...], wall: float) -> tuple[Device, ...]:
    """Return the devices, each with the moment since when it is healthy, or is not: that of `before` where its health
    is the same, otherwise `wall`."""
    known = {(device.id, device.healthy): device.since for device in before}
    return tuple(replace(device, since=known.get((device.id, device.healthy), wall)) for device in devices)
