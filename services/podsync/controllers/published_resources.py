"""Publishes what the node has: the amounts of the machine, and those of the device plugins as volume reports them."""

import asyncio

from bus.interface import Bus, Change, Freshness
from bus.messages.device_plugins import DeviceResource
from bus.messages.podsync import NodeResources
from bus.messages.streams import DEVICES_RESOURCES, NODE_RESOURCES
from services.podsync.core.node.node_resources import with_devices
from services.podsync.core.node.shown_devices import HOLD_SECONDS, Shown, shown_devices

MAX_VANISHED = 64  # resources that no plugin has any more, and that the Node shows with the amount 0


class PublishedResources:
    """Owns `node.resources`. `machine`: the amounts without devices.

    While volume is gone or has not connected to its plugins again, and HOLD_SECONDS longer for plugins that serve anew,
    the last amounts stay: a restart of volume changes neither the Node nor a verdict.
    """

    def __init__(self, bus: Bus, machine: NodeResources) -> None:
        self._machine = machine
        self._vanished: dict[str, None] = {}  # in the order in which they vanished
        self._names: frozenset[str] = frozenset()  # of the resources that are known
        self._listed: Shown = {}  # each resource as it was shown when it last had devices
        self._is_restarting = True  # volume has not listed all plugins since it started
        self._is_held = False  # it did less than HOLD_SECONDS ago, and has listed devices before
        self._timer: asyncio.TimerHandle | None = None  # of the end of that
        self._stream = bus.own(NODE_RESOURCES)
        self._stream.put("node", machine)
        self._stream.mark_complete()
        self._followed = bus.follow(DEVICES_RESOURCES, self._changed)

    def _changed(self, change: Change[DeviceResource]) -> None:
        if isinstance(change, Freshness) and not change.complete:
            self._is_restarting = True
        self._publish()

    def _publish(self) -> None:
        if not self._followed.complete or self._followed.stale:
            return
        devices = self._followed.state
        gone = [name for name in (*self._vanished, *sorted(self._names - devices.keys())) if name not in devices]
        self._vanished, self._names = dict.fromkeys(gone[-MAX_VANISHED:]), frozenset(devices)
        if self._is_restarting:
            self._is_restarting, self._is_held = False, bool(self._listed)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, self._end_hold)
        shown = shown_devices(devices, self._listed, is_held=self._is_held)
        self._listed = {name: resource for name, resource in shown.items() if resource.devices}
        self._stream.put("node", with_devices(self._machine, shown.values(), self._vanished), "devices changed")

    def _end_hold(self) -> None:
        self._is_held = False
        self._publish()
