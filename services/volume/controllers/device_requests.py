"""Answers podsync's requests to device plugins: preferences, allocations, and the call before a container starts
(node.md 4.15). Every failure is one line of the answer; a plugin that hangs delays the requests for its own resource
only.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bus.messages.device_plugins import (
    AllocatedDevices,
    AllocateDevices,
    GetPreferredAllocation,
    PreferredAllocation,
    PreStartContainer,
    PreStartedContainer,
)
from services.volume.adapters.device_plugins import DevicePlugin, connected_plugin
from services.volume.controllers.device_plugins import DevicePlugins
from services.volume.core.device_plugins.plugin_checks import UnusableDevicesError
from shared.metrics.family import histogram
from shared.metrics.registry import Registry
from shared.plugin_grpc.connection import PluginCallError
from shared.text.plain_text import plain
from shared.time.clock import Clock

log = logging.getLogger(__name__)

MAX_CALLS = 4  # of one plugin at the same time; further ones wait
ALLOCATIONS = histogram(
    "kubelet_device_plugin_alloc_duration_seconds", "Duration of Allocate of a device plugin.", "resource_name"
)


_SILENT = ("Unavailable", "DeadlineExceeded", "Canceled")  # codes of a call that the plugin has not answered


class NotConnectedError(UnusableDevicesError):
    """Says that there is no connection to the plugin."""


class DeviceRequests:
    """Answers requests by calls of the plugins that are connected."""

    def __init__(self, plugins: DevicePlugins, clock: Clock, metrics: Registry) -> None:
        self._plugins, self._clock = plugins, clock
        self._allocations = metrics.histogram(ALLOCATIONS)
        self._free: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_CALLS))

    async def prefer(self, request: GetPreferredAllocation) -> PreferredAllocation:
        """Answer GetPreferredAllocation."""
        try:
            async with self._plugin(request.resource) as plugin:
                devices = await plugin.preferred(request.available, request.must_include, request.size)
        except (PluginCallError, UnusableDevicesError) as error:
            return PreferredAllocation(error=_failed("GetPreferredAllocation", request.resource, error))
        return PreferredAllocation(devices=devices)

    async def allocate(self, request: AllocateDevices) -> AllocatedDevices:
        """Answer AllocateDevices."""
        try:
            async with self._plugin(request.resource) as plugin:
                began = self._clock.monotonic()
                try:
                    return await plugin.allocate(request.devices)
                finally:
                    self._allocations.observe(self._clock.monotonic() - began, request.resource)
        except (PluginCallError, UnusableDevicesError) as error:
            line = _failed("Allocate", request.resource, error)
            return AllocatedDevices(error=line, unanswered=isinstance(error, NotConnectedError) or _is_silent(error))

    async def pre_start(self, request: PreStartContainer) -> PreStartedContainer:
        """Answer PreStartContainer."""
        try:
            async with self._plugin(request.resource) as plugin:
                await plugin.pre_start(request.devices)
        except (PluginCallError, UnusableDevicesError) as error:
            return PreStartedContainer(error=_failed("PreStartContainer", request.resource, error))
        return PreStartedContainer()

    @asynccontextmanager
    async def _plugin(self, resource: str) -> AsyncIterator[DevicePlugin]:
        endpoint = self._plugins.endpoint(resource)
        if endpoint is None:
            raise NotConnectedError("the plugin is not connected")
        async with self._free[resource], connected_plugin(endpoint) as plugin:
            yield plugin


def _failed(method: str, resource: str, error: Exception) -> str:
    line = f"device plugin {method} rpc failed for {plain(resource)} with err: {plain(str(error))}"
    log.warning("%s", line)
    return line


def _is_silent(error: Exception) -> bool:
    return isinstance(error, PluginCallError) and error.code in _SILENT
