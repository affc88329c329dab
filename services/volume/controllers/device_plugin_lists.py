"""Follows the lists of devices of one plugin, and connects to it again when its connection has ended (node.md 4.15)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NoReturn

from bus.messages.device_plugins import Device
from services.volume.adapters.device_plugins import connected_plugin, decode_devices
from services.volume.core.device_plugins.device_resources import PluginOptions
from services.volume.core.device_plugins.plugin_checks import UnusableDevicesError
from shared.plugin_grpc.async_connection import NewestMessage
from shared.plugin_grpc.connection import PluginCallError
from shared.text.plain_text import plain
from shared.time.backoff import Backoff

log = logging.getLogger(__name__)

MIN_LIST_SECONDS = 1.0  # between two lists of one plugin that are published; those in between are not decoded
MAX_FIRST_LIST_SECONDS = 10.0  # after which a connection that has brought no list counts as ended, until one comes
RETRIES = Backoff(initial=1.0, cap=60.0)  # of the connection to a plugin that does not register again


class DevicePluginLists:
    """Calls `on_list` with the plugin's options and devices for each list, and `on_end` with a line when the plugin is
    not connected: its connection has ended, could not be made, or has brought no list yet."""

    def __init__(
        self,
        resource: str,
        endpoint: str,
        on_list: Callable[[PluginOptions, tuple[Device, ...]], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._resource, self._endpoint = resource, endpoint
        self._on_list, self._on_end = on_list, on_end
        self._failures, self._logged = 0, ""

    async def follow(self) -> NoReturn:
        """Connect to the plugin, and again after a growing delay whenever the connection has ended, until cancelled."""
        while True:
            try:
                await self._listen()
            except (PluginCallError, UnusableDevicesError) as failure:
                error = plain(str(failure))
            except Exception as failure:
                error = f"unexpected {type(failure).__name__}"
                log.exception("device plugin of %s: unexpected failure", self._resource)
            self._failures += 1
            self._note_end(error)
            await asyncio.sleep(RETRIES.delay(self._failures))

    async def _listen(self) -> NoReturn:
        """Follow one connection until it ends. Raises PluginCallError and UnusableDevicesError."""
        async with connected_plugin(self._endpoint) as plugin:
            options = await plugin.options()
            with contextlib.closing(plugin.lists()) as lists:
                repeated = False
                last: bytes | None = None
                message = await self._first_list(lists)
                while True:
                    if message != last:
                        last = message
                        devices, count = decode_devices(message)
                        if count != len(devices) and not repeated:
                            repeated = True
                            log.warning("device plugin of %s lists ids twice; the last of each counts", self._resource)
                        self._failures, self._logged = 0, ""
                        self._on_list(options, devices)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(MIN_LIST_SECONDS):
                            await lists.ended.wait()
                    message = await lists.take()

    async def _first_list(self, lists: NewestMessage) -> bytes:
        """Return the first list, however late it is. Meanwhile the plugin is not connected, and delays nobody who waits
        for the resources of all plugins. Raises PluginCallError."""
        try:
            async with asyncio.timeout(MAX_FIRST_LIST_SECONDS):
                return await lists.take()
        except TimeoutError:
            self._note_end(f"it has listed no devices for {MAX_FIRST_LIST_SECONDS:g} s")
        return await lists.take()

    def _note_end(self, error: str) -> None:
        if error != self._logged:
            self._logged = error
            log.warning("device plugin of %s at %s is not connected: %s", self._resource, self._endpoint, error)
        self._on_end(error)
