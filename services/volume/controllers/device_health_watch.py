"""Follows the health of devices that drivers of dynamic resource allocation report (node.md 4.16).

Each driver has a task of its own: one that hangs or lies delays no other.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import NoReturn

from bus.messages.volume import RegisteredPlugin
from services.volume.adapters.dra_drivers import decode_health, followed_health
from services.volume.core.resource_claims.device_health import DeviceHealth
from services.volume.core.resource_claims.driver_checks import DriverError
from shared.plugin_grpc.connection import PluginCallError
from shared.text.plain_text import plain
from shared.time.backoff import Backoff
from shared.time.clock import Clock

log = logging.getLogger(__name__)

RETRIES = Backoff(initial=1.0, cap=60.0)
MIN_REPORT_SECONDS = 1.0  # between two reports of one driver that are used; those in between are not decoded


class DeviceHealthWatch:
    """Keeps `health`. `registered` returns the drivers by name; `on_change` is called when a report has come."""

    def __init__(self, clock: Clock, registered: Callable[[], Mapping[str, RegisteredPlugin]]) -> None:
        self._clock, self._registered = clock, registered
        self.health = DeviceHealth()
        self.on_change: Callable[[], None] = lambda: None
        self._tasks: dict[str, tuple[RegisteredPlugin, asyncio.Task[NoReturn]]] = {}

    def drivers_changed(self) -> None:
        """Follow the drivers that are registered now, each at the socket that registered last."""
        found = {name: plugin for name, plugin in self._registered().items() if plugin.health}
        for name, (plugin, task) in list(self._tasks.items()):
            if found.get(name) != plugin:
                task.cancel()
                del self._tasks[name]
                if name not in found:
                    self.health.forget(name)
        for name, plugin in found.items():
            if name not in self._tasks:
                following = asyncio.create_task(self._keep_following(name, plugin), name=f"health of {name}")
                self._tasks[name] = (plugin, following)

    async def close(self) -> None:
        """Follow no driver until `drivers_changed` is called again."""
        tasks = [task for _, task in self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_following(self, driver: str, plugin: RegisteredPlugin) -> NoReturn:
        """Connect again whenever the stream has ended, later and later."""
        failures, logged = 0, ""
        while True:
            began = self._clock.monotonic()
            try:
                await self._follow(driver, plugin)
            except (PluginCallError, DriverError) as failure:
                error = plain(str(failure))
            except Exception as failure:
                error = f"unexpected {type(failure).__name__}"
                log.exception("health of DRA driver %s: unexpected failure", driver)
            failures = 1 if self._clock.monotonic() - began > RETRIES.cap else failures + 1
            if error != logged:
                logged = error
                log.warning("the health of the devices of DRA driver %s is not reported: %s", driver, error)
            await asyncio.sleep(RETRIES.delay(failures))

    async def _follow(self, driver: str, plugin: RegisteredPlugin) -> NoReturn:
        """Note each report until the stream ends. Raises PluginCallError and DriverError."""
        async with followed_health(plugin.endpoint, plugin.health) as reports:
            while True:
                devices, count = decode_health(await reports.take())
                self.health.reported(driver, devices, count, self._clock.monotonic())
                self.on_change()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(MIN_REPORT_SECONDS):
                        await reports.ended.wait()
