"""Registers the plugins whose sockets are below `plugins_registry`, and publishes them (node.md 8.1).

It looks at the directory after each change in it, and once a minute. Each socket is tried by itself: one that hangs
delays no other.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from bus.interface import Bus, OwnedStream
from bus.messages.volume import RegisteredPlugin
from services.volume.adapters import registration
from services.volume.adapters.plugin_sockets import PluginSockets
from services.volume.adapters.threads import Threads
from services.volume.controllers.device_plugins import DevicePlugins
from services.volume.core.device_plugins.device_resources import PluginSocket
from services.volume.core.device_plugins.plugin_checks import UnusableDevicesError
from services.volume.core.registration.plugin_answers import (
    CSI,
    DEVICE,
    DRA,
    PluginInfo,
    UnusablePluginError,
    registered_csi,
    registered_plugin,
    unusable_device_plugin,
    version_of,
    with_limit,
)
from services.volume.core.registration.plugin_registry import Identity, PluginRegistry
from shared.model.frozen_copy import replace
from shared.plugin_grpc.connection import PluginCallError
from shared.process.crash import crash_point
from shared.time.clock import Clock

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0  # between two looks at the directory without a change
MAX_TRIED_SOCKETS = 16  # at the same time
_TROUBLE = "plugin registration"


class PluginRegistration:
    """Registers plugins and publishes them. `run` is the loop; `on_change` is called after each change of what is
    published, and when the list has become complete. `devices` receives the device plugins."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        sockets: PluginSockets,
        stream: OwnedStream[RegisteredPlugin],
        devices: DevicePlugins,
    ) -> None:
        self._bus, self._clock, self._sockets, self._stream = bus, clock, sockets, stream
        self._devices = devices
        self._registry = PluginRegistry()
        self._threads = _threads(clock)
        self._changed, self._looks_due = asyncio.Event(), True
        self._attempts: set[asyncio.Task[None]] = set()
        self._logged: dict[str, str] = {}  # socket -> its last failure
        self._was_complete = False
        self.on_change: Callable[[], None] = lambda: None
        self.listens: Callable[[str], bool] = lambda _: True  # whether a DRA driver listens at this socket

    def endpoint(self, kind: str, name: str) -> str | None:
        """Return the socket of the plugin's own service; None = it is not registered. Any thread may call it."""
        plugin = self._stream.get(f"{kind}/{name}")
        return plugin.endpoint if plugin is not None else None

    def endpoints(self, kind: str, name: str) -> list[RegisteredPlugin]:
        """Return the plugins of this type and name at all their sockets, the last registered one first."""
        return self._registry.named(kind, name)

    def registered(self, kind: str) -> dict[str, RegisteredPlugin]:
        """Return the plugins of this type by name."""
        return {plugin.name: plugin for plugin in self._registry.plugins().values() if plugin.type == kind}

    def sockets(self, kind: str) -> list[str]:
        """Return the sockets of all plugins of this type."""
        names = self.registered(kind)
        return [plugin.endpoint for name in names for plugin in self.endpoints(kind, name)]

    def connections_changed(self) -> None:
        """Publish which DRA drivers listen."""
        self._publish()

    @property
    def complete(self) -> bool:
        """Return whether the plugins that are there are known."""
        return self._registry.complete

    def drivers(self) -> list[str]:
        """Return the names of the CSI drivers that are registered."""
        return [plugin.name for plugin in self._registry.plugins().values() if plugin.csi is not None]

    async def update_limit(self, driver: str) -> None:
        """Read from a CSI driver again how many volumes the node takes, and publish it. Raises PluginCallError."""
        plugin = self._stream.get(f"{CSI}/{driver}")
        if plugin is None:
            return
        node = await self._threads.call(registration.node_get_info, plugin.endpoint)
        self._registry.updated(plugin, with_limit(plugin, node))
        self._publish()

    async def run(self) -> None:
        """Register and deregister plugins until cancelled. After an unexpected failure it may be called again."""
        watching = asyncio.create_task(self._watch(), name="plugin sockets")
        try:
            while True:
                self._changed.clear()
                await self._look()
                for path, identity in self._registry.due(self._clock.monotonic()):
                    attempt = asyncio.create_task(self._attempt(path, identity), name=f"registration at {path}")
                    self._attempts.add(attempt)
                    attempt.add_done_callback(self._attempts.discard)
                self._publish()
                await self._next()
        finally:
            for task in (watching, *self._attempts):
                task.cancel()
            self._threads.close()
            self._threads, self._looks_due = _threads(self._clock), True

    async def _watch(self) -> None:
        try:
            await self._sockets.run(self._directory_changed)
        except OSError as error:
            log.warning("%s cannot be watched: %s", self._sockets.root, error.strerror)

    def _directory_changed(self) -> None:
        self._looks_due = True
        self._changed.set()

    async def _look(self) -> None:
        if not self._looks_due:
            return
        self._looks_due = False
        try:
            self._registry.set_sockets(await self._threads.call(self._sockets.look))
            self._bus.trouble(_TROUBLE, self._sockets.trouble or None)
        except OSError as error:
            self._bus.trouble(_TROUBLE, f"{self._sockets.root} cannot be read: {error.strerror}")

    async def _next(self) -> None:
        now = self._clock.monotonic()
        attempt = self._registry.next_attempt(now)
        wait = LOOK_SECONDS if attempt is None else min(LOOK_SECONDS, attempt - now)
        try:
            async with asyncio.timeout(max(wait, 0.0)):
                await self._changed.wait()
        except TimeoutError:
            self._looks_due = True

    async def _attempt(self, path: str, identity: Identity) -> None:
        """Try to register the plugin at a socket. A failure is logged once, and sent to a plugin that answered."""
        try:
            await self._register(path, identity)
        except asyncio.CancelledError:
            self._registry.failed(path, identity, self._clock.monotonic())  # `run` may be called again
            raise
        except UnusablePluginError as error:
            if error.final:
                self._registry.refused(path, identity)
            else:
                self._registry.failed(path, identity, self._clock.monotonic())
            self._note(path, str(error))
            with contextlib.suppress(PluginCallError):
                await self._threads.call(registration.notify, path, str(error))
        except PluginCallError as error:
            self._registry.failed(path, identity, self._clock.monotonic())
            self._note(path, str(error))
        except Exception as error:
            self._registry.failed(path, identity, self._clock.monotonic())
            self._note(path, f"unexpected {type(error).__name__}")
            log.exception("the registration of the plugin at %s failed unexpectedly", path)
        self._changed.set()

    async def _register(self, path: str, identity: Identity) -> None:
        info = await self._threads.call(registration.get_info, path)
        version = version_of(info, path, self._registry.other(path, info.type, info.name))
        if info.type == DRA:
            plugin = registered_plugin(info, version)
        elif info.type == DEVICE:
            plugin = await self._register_device_plugin(path, info, version)
        else:
            plugin = await self._register_csi(info, version)
        crash_point("volume.plugin.answered")
        if not self._registry.registered(path, identity, plugin):
            return
        self._logged.pop(path, None)
        self._publish()
        crash_point("volume.plugin.published")
        try:
            await self._threads.call(registration.notify, path, "")
        except PluginCallError as error:
            # The kubelet counts this as a failure of the registration; a driver that is not notified restarts itself.
            log.warning("the plugin at %s does not take its registration status: %s", path, error)

    async def _register_csi(self, info: PluginInfo, version: str) -> RegisteredPlugin:
        try:
            node = await self._threads.call(registration.node_get_info, info.endpoint)
        except PluginCallError as error:
            text = f"RegisterPlugin error -- plugin registration failed with err: {error}"
            raise UnusablePluginError(text, final=False) from None
        return registered_csi(info, version, node)

    async def _register_device_plugin(self, path: str, info: PluginInfo, version: str) -> RegisteredPlugin:
        try:
            await self._devices.register(info.name, PluginSocket(info.endpoint, registry=path))
        except UnusableDevicesError as error:
            raise unusable_device_plugin(error) from None
        return registered_plugin(info, version)

    def _publish(self) -> None:
        plugins = {key: self._with_connection(plugin) for key, plugin in self._registry.plugins().items()}
        keys = self._stream.keys()
        before = {key: self._stream.get(key) for key in keys}
        for key, plugin in before.items():
            if key not in plugins:
                log.info("plugin %s is deregistered: its socket is gone", key)
                self._stream.delete(key, "its socket is gone")
                if plugin is not None and plugin.type == DEVICE:
                    self._devices.deregister(plugin.name, plugin.endpoint)
        for key, plugin in plugins.items():
            if (known := before.get(key)) != plugin:
                if known is None or replace(known, connected=plugin.connected) != plugin:
                    log.info("plugin %s is registered: version %s at %s", key, plugin.version, plugin.endpoint)
                self._stream.put(key, plugin, "registered")
        complete = self._registry.complete
        if complete:
            self._stream.mark_complete()
        if plugins != before or complete != self._was_complete:
            self._was_complete = complete
            self.on_change()

    def _with_connection(self, plugin: RegisteredPlugin) -> RegisteredPlugin:
        if plugin.type != DRA:
            return plugin
        listens = any(self.listens(each.endpoint) for each in self.endpoints(DRA, plugin.name))
        return replace(plugin, connected=listens)

    def _note(self, path: str, why: str) -> None:
        if self._logged.get(path) != why:
            self._logged[path] = why
            log.warning("the plugin at %s is not registered: %s", path, why)


def _threads(clock: Clock) -> Threads:
    return Threads("plugins", MAX_TRIED_SOCKETS, clock)
