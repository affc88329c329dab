"""Runs the checks of `/healthz`: takes the beats of all services, and flushes our own log once a minute."""

import asyncio
import logging
from pathlib import Path

from bus.beat import next_beat_in
from bus.messages.beat import Beat
from bus.messages.streams import SERVICES
from services.frame.launch import Context
from services.server.core.pages.health import Check, Health

_DEVICE_SOCKET = "device-plugins/kubelet.sock"  # below the root directory
_FLUSH_SECONDS = 60.0  # between two flushes of our own log, from which the `log` check follows


class HealthChecks:
    """Has the results of the checks. `names` are the checks that the main and the read-only listener serve."""

    def __init__(self, context: Context) -> None:
        self._bus, self._clock = context.bus, context.clock
        others = [service for service in SERVICES if service != context.service]
        device_socket = str(Path(context.config.root_dir) / _DEVICE_SOCKET)
        self._health = Health(others, context.config.sync_frequency, device_socket, self._clock.monotonic())
        self.names = self._health.names
        self._bus.on_beat(self._take_beat)

    def checks(self) -> tuple[Check, ...]:
        """Return the results of the checks at this moment."""
        return self._health.checks(self._clock.monotonic())

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Add the loops to `tasks`."""
        tasks.create_task(self._turn(), name="turn")
        tasks.create_task(self._flush_log(), name="flush-log")

    def _take_beat(self, beat: Beat) -> None:
        self._health.note_beat(beat.service, beat.progress, self._clock.monotonic(), beat.troubles)

    async def _turn(self) -> None:
        while True:
            self._bus.progress("serve")
            await asyncio.sleep(next_beat_in(self._clock.monotonic()))

    async def _flush_log(self) -> None:
        """Flush our own log in a thread, so that only the thread waits while the disk hangs, and note each flush that
        succeeds."""
        while True:
            await asyncio.to_thread(_flush_handlers)
            self._health.note_log_flushed(self._clock.monotonic())
            await asyncio.sleep(_FLUSH_SECONDS)


def _flush_handlers() -> None:
    for handler in logging.getLogger().handlers:
        handler.flush()
