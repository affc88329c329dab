"""Notifies systemd by READY, once all services have sent a beat, and by the watchdog's pings; watches the lock file.

`core.agent_health` decides whether the agent is healthy.
"""

import asyncio
import logging
import os
from pathlib import Path

from bus.messages.beat import Beat
from bus.messages.bootstrap import SUPERVISORD_IS_SILENT
from bus.messages.streams import SERVICES
from services.bootstrap.adapters import supervisord
from services.bootstrap.adapters.lock_contention import LockContention
from services.bootstrap.adapters.ready_notice import notify_ready, supervisord_answers
from services.bootstrap.core.agent_health import AgentHealth, poll_times
from services.frame.launch import Context
from shared.agent.service_notify import keep_pinging, service_socket, watchdog_interval
from shared.log.klog import structured

log = logging.getLogger(__name__)


class Systemd:
    """Notifies systemd. `generation`, `process`: generation and PID of the supervisord that started us."""

    def __init__(self, context: Context, generation: str, process: int) -> None:
        self._context, self._generation = context, generation
        self._address = service_socket()
        self._interval = watchdog_interval(os.environ, process) if self._address else 0.0
        config = context.config
        self._contention = LockContention(config.lock_file) if config.exit_on_lock_contention else None
        self._health = AgentHealth([name for name in SERVICES if name != "bootstrap"], config.sync_frequency)
        self._all_started = asyncio.Event()
        if self._address or self._contention:
            context.bus.on_beat(self._take_beat)

    async def run(self) -> None:
        """Run until cancelled; return at once where there is nothing to notify."""
        async with asyncio.TaskGroup() as tasks:
            if self._address:
                tasks.create_task(self._notify_ready(), name="ready")
            if self._interval:
                tasks.create_task(self._question_supervisord(), name="supervisord")
                tasks.create_task(keep_pinging(self._interval, self._is_well, self._address), name="pings")
            if self._contention:
                tasks.create_task(self._give_way(self._contention), name="lock file")

    def _take_beat(self, beat: Beat) -> None:
        if self._health.note_beat(beat.service, beat.progress):
            self._all_started.set()

    async def _notify_ready(self) -> None:
        await self._all_started.wait()
        await asyncio.to_thread(notify_ready, Path(self._context.config.run_dir), self._generation)

    def _is_well(self) -> bool:
        return self._health.is_well(self._context.clock.monotonic())

    async def _question_supervisord(self) -> None:
        pause, timeout = poll_times(self._interval)
        while True:
            answers = await supervisord_answers(timeout)
            if answers != self._health.supervisord_answers:
                self._health.supervisord_answers = answers
                self._context.bus.trouble("supervisord", None if answers else SUPERVISORD_IS_SILENT)
            await asyncio.sleep(pause)

    async def _give_way(self, contention: LockContention) -> None:
        """End the whole agent cleanly when the lock file is contended, but not before the agent has started."""
        await contention.wait()
        await self._all_started.wait()
        parent = supervisord.Supervisord.of_environment()
        if parent is None:
            log.error("%s", structured("Another process opened the lock file: stop this agent by hand"))
            return
        try:
            await asyncio.to_thread(parent.shut_down)
        except supervisord.SupervisordError as error:
            log.error("%s", structured("Failed to end for the process that opened the lock file", err=error))
