"""Registers device plugins at `device-plugins/kubelet.sock`, follows their lists of devices, and publishes the
resources (node.md 4.15).

Each plugin has a connection and a task of its own: one that hangs or dies delays no other.
"""

import asyncio
import contextlib
import logging
from functools import partial
from pathlib import Path

from bus.interface import Bus, OwnedStream
from bus.messages.device_plugins import Device, DeviceResource
from services.volume.adapters.device_plugin_files import DevicePluginRecord, remove_sockets
from services.volume.adapters.device_plugins import registration_server
from services.volume.adapters.threads import Threads
from services.volume.controllers.device_plugin_lists import DevicePluginLists
from services.volume.core.device_plugins.device_resources import DeviceResources, PluginOptions, PluginSocket
from services.volume.core.device_plugins.plugin_checks import (
    UnusableDevicesError,
    check_resource,
    check_version,
    socket_below,
)
from shared.host.device_checkpoint import CHECKPOINT, DeviceCheckpoint
from shared.metrics.family import counter
from shared.metrics.registry import Registry
from shared.process.crash import crash_point
from shared.text.plain_text import plain
from shared.time.clock import Clock

log = logging.getLogger(__name__)

DIRECTORY = "device-plugins"  # below the root directory
SOCKET = "kubelet.sock"
RECORD = "bulkhead/volume/device_plugins.json"  # below the root directory
REGISTRATIONS = counter("kubelet_device_plugin_registration_total", "Registrations of device plugins.", "resource_name")
_TROUBLE, _RECORD_TROUBLE = "device-plugins", "device plugin record"


class DevicePlugins:
    """Registers and follows device plugins. `run` is the loop."""

    def __init__(
        self, bus: Bus, clock: Clock, root: Path, stream: OwnedStream[DeviceResource], metrics: Registry
    ) -> None:
        self._bus, self._clock, self._stream = bus, clock, stream
        self._directory = root / DIRECTORY
        self._record = DevicePluginRecord(root / RECORD)
        self._earlier = DeviceCheckpoint(self._directory / CHECKPOINT.name)
        self._resources = DeviceResources()
        self._registered = metrics.counter(REGISTRATIONS)
        self._threads = _threads(clock)
        self._saved: dict[str, PluginSocket] = {}
        self._saving = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by resource
        self._changed = asyncio.Event()
        self._restored = asyncio.Event()

    def endpoint(self, resource: str) -> str | None:
        """Return the socket of the resource's plugin; None = it is not connected."""
        item = self._stream.get(resource)
        return self._resources.sockets()[resource].endpoint if item is not None and item.connected else None

    async def register(self, resource: str, socket: PluginSocket) -> None:
        """Use the plugin at this socket for the resource, in place of an earlier one. Raises UnusableDevicesError.

        Waits until the record of the process before was read: its sockets would replace this one, and this one would
        replace them on disk. A caller that goes away leaves no half of a registration."""
        await self._restored.wait()
        await asyncio.shield(self._accept(resource, socket))

    async def _accept(self, resource: str, socket: PluginSocket) -> None:
        number = self._resources.registered(resource, socket, self._clock.monotonic(), self._clock.wall())
        await self._save()
        crash_point("volume.device_plugin.saved")
        self._registered.inc(resource)
        for name in set(self._stream.keys()) - self._resources.shown().keys():
            self._stream.delete(name, "another resource took the place of a dropped one")
        if self._resources.registration(resource) == number:
            self._publish(resource, "registered")
            self._follow(resource, number, socket.endpoint)

    def deregister(self, resource: str, endpoint: str) -> None:
        """End the use of the plugin whose socket below `plugins_registry` is gone, unless another one has registered
        since."""
        if self._resources.deregistered(resource, endpoint, self._clock.monotonic(), self._clock.wall()):
            self._end(resource)
            self._publish(resource, "deregistered")
            self._mark_complete()

    async def run(self) -> None:
        """Register plugins, follow their lists and drop resources until cancelled. After an unexpected failure this may
        be called again."""
        try:
            await self._restore()
        finally:
            self._restored.set()
        server = registration_server(self._directory / SOCKET, self._register)
        opening = asyncio.create_task(server.open(partial(self._bus.trouble, _TROUBLE)), name="device plugin socket")
        try:
            while True:
                self._changed.clear()
                await self._save()
                await self._drop()
        finally:
            self._restored.clear()
            for task in (opening, *self._tasks.values()):
                task.cancel()
            self._threads.close()
            self._threads = _threads(self._clock)
            await server.stop()

    async def _restore(self) -> None:
        """Connect to the plugins that are known, which at the start of the process are those of the record."""
        known = self._resources.sockets() or await self._load()
        self._resources.restored(known, self._clock.monotonic(), self._clock.wall())
        for resource, socket in self._resources.sockets().items():
            if socket.endpoint:
                self._follow(resource, self._resources.registration(resource), socket.endpoint)
            self._publish(resource, "of an earlier process")
        self._mark_complete()

    async def _load(self) -> dict[str, PluginSocket]:
        """Return what the process before has saved, and remove the sockets of other plugins. Where that is nothing,
        return the resources that the checkpoint of devices names, without sockets: their plugins must register
        again."""
        try:
            self._saved = await self._threads.call(self._record.load)
        except (OSError, ValueError) as error:
            line = f"{self._record.path}: cannot be read: {error} (device plugins must register again: restart them)"
            log.warning("%s", line)
        known = self._saved or dict.fromkeys(await self._threads.call(self._earlier.resources), PluginSocket(""))
        kept = {socket.endpoint for socket in self._saved.values()}
        try:
            await self._threads.call(remove_sockets, self._directory, kept)
        except OSError as error:
            log.warning("%s: the sockets of earlier plugins cannot be removed: %s", self._directory, error.strerror)
        return known

    async def _register(self, version: str, resource: str, endpoint: str) -> None:
        """Take a registration at the socket. Raises UnusableDevicesError."""
        try:
            check_version(version)
            check_resource(resource)
            await self.register(resource, PluginSocket(socket_below(str(self._directory), endpoint)))
        except UnusableDevicesError as error:
            log.warning("the registration of a device plugin for %s is refused: %s", plain(resource[:128]), error)
            raise

    async def _save(self) -> None:
        """Save the sockets once a write under way has ended, if they are other ones than those of the record. Where
        that fails, which is a trouble, the registrations count in this process only."""
        async with self._saving:
            sockets = self._resources.sockets()
            if sockets == self._saved:
                return
            try:
                await self._threads.call(self._record.save, sockets)
            except OSError as error:
                line = (
                    f"{self._record.path}: cannot be written: {error.strerror} (free space or repair the file system)"
                )
                self._bus.trouble(_RECORD_TROUBLE, line)
            else:
                self._saved = sockets
                self._bus.trouble(_RECORD_TROUBLE, None)

    def _follow(self, resource: str, number: int, endpoint: str) -> None:
        self._end(resource)
        log.info("device plugin of %s: registered at %s", resource, endpoint)
        lists = DevicePluginLists(
            resource, endpoint, partial(self._listed, resource, number), partial(self._ended, resource, number)
        )
        self._tasks[resource] = asyncio.create_task(lists.follow(), name=f"device plugin of {resource}")

    def _end(self, resource: str) -> None:
        task = self._tasks.pop(resource, None)
        if task is not None:
            task.cancel()

    def _listed(self, resource: str, number: int, options: PluginOptions, devices: tuple[Device, ...]) -> None:
        self._resources.listed(resource, number, options, devices, self._clock.wall())
        self._publish(resource, "listed")
        self._mark_complete()

    def _ended(self, resource: str, number: int, error: str) -> None:
        self._resources.ended(resource, number, error, self._clock.monotonic(), self._clock.wall())
        self._publish(resource, "not connected")
        self._mark_complete()

    async def _drop(self) -> None:
        """Wait until a grace ends or something changes, then drop each resource whose grace has ended."""
        due = self._resources.next_drop()
        wait = None if due is None else max(due - self._clock.monotonic(), 0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._changed.wait()
        for resource in self._resources.drop(self._clock.monotonic()):
            log.warning("device plugin of %s has not come back: the node has no such devices any more", resource)
            self._end(resource)
            self._publish(resource, "dropped")
        self._mark_complete()

    def _publish(self, resource: str, cause: str) -> None:
        self._stream.put(resource, self._resources.shown()[resource], cause)
        self._changed.set()

    def _mark_complete(self) -> None:
        if self._resources.complete:
            self._stream.mark_complete()


def _threads(clock: Clock) -> Threads:
    return Threads("device plugin record", 1, clock)
