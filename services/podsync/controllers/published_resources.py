"""Publishes what the node has: the amounts of the machine, and those of the device plugins as volume reports them."""

import asyncio

from bus.interface import Bus, Change
from bus.messages.device_plugins import DeviceResource
from bus.messages.podsync import NodeResources
from bus.messages.streams import DEVICES_RESOURCES, NODE_RESOURCES
from services.podsync.core.node.node_resources import with_devices
from services.podsync.core.node.shown_devices import ShownDevices

MAX_VANISHED = 64  # resources that no plugin has any more, and that the Node shows with the amount 0


class PublishedResources:
    """Owns `node.resources`. `machine`: the amounts without devices.

    While volume is gone or has not connected to its plugins again, the last amounts stay: a restart of volume changes
    neither the Node nor a verdict.
    """

    def __init__(self, bus: Bus, machine: NodeResources) -> None:
        self._machine = machine
        self._vanished: dict[str, None] = {}  # in the order in which they vanished
        self._names: frozenset[str] = frozenset()  # of the resources that are known
        self._shown = ShownDevices()
        self._timer: asyncio.TimerHandle | None = None
        self._stream = bus.own(NODE_RESOURCES)
        self._stream.put("node", machine)
        self._stream.mark_complete()
        self._followed = bus.follow(DEVICES_RESOURCES, self._changed)

    def _changed(self, _: Change[DeviceResource]) -> None:
        self._publish()

    def _publish(self) -> None:
        if not self._followed.complete or self._followed.stale:
            return
        devices = self._followed.state
        gone = [name for name in (*self._vanished, *sorted(self._names - devices.keys())) if name not in devices]
        self._vanished, self._names = dict.fromkeys(gone[-MAX_VANISHED:]), frozenset(devices)
        loop = asyncio.get_running_loop()
        shown = self._shown.take(devices, loop.time())
        self._stream.put("node", with_devices(self._machine, shown, self._vanished), "devices changed")
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._shown.due is None else loop.call_at(self._shown.due, self._publish)
