"""Delays a shutdown of the machine until the API server has what it has changed: the Node, which is not Ready, and the
statuses of the pods that have stopped. podsync, which stops them, delays it as well, and waits for the report of this:
so one of both may be killed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from bus.messages.status import ShutdownReported
from bus.messages.streams import NODE_SHUTDOWN, SHUTDOWN_REPORTED
from services.frame.launch import Context
from services.status.core.shutdown_release import ReleaseInputs, is_reported, may_release, next_look
from shared.logind.shutdown_watch import ShutdownWatch
from shared.model.shutdown_groups import Groups, total_seconds

log = logging.getLogger(__name__)

_WHY = "Kubelet needs time to write the statuses of its pods"
_NODE = "node"


class ShutdownLock:
    """Holds the lock. `groups`: those of the configuration; `is_written` returns whether the API server has all that
    this process knows; `system_bus`: address of the bus that logind is on, None = the system's."""

    def __init__(
        self, context: Context, groups: Groups, is_written: Callable[[], bool], system_bus: str | None = None
    ) -> None:
        self._clock, self._is_written = context.clock, is_written
        self._pods_seconds = total_seconds(groups)
        self._began: float | None = None  # CLOCK_MONOTONIC seconds; None = no shutdown is in progress
        self._over_since: float | None = None  # when podsync was found to say that all pods have stopped
        self._written_since: float | None = None  # when `is_written` was found to hold, without a break until now
        self._changed = asyncio.Event()
        self._reported = context.bus.own(SHUTDOWN_REPORTED)
        self._reported.mark_complete()
        self._shutdown = context.bus.follow(NODE_SHUTDOWN, lambda _: self._changed.set())
        self._watch = ShutdownWatch(
            _WHY,
            on_change=self._on_change,
            trouble=lambda line: context.bus.trouble("logind", line),
            address=system_bus,
        )

    async def run(self) -> None:
        """Hold the lock until cancelled, and release it once in each shutdown."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run(), name="logind")
            while True:
                self._changed.clear()
                wait = self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()

    def _on_change(self, in_progress: bool) -> None:
        if in_progress and self._began is None:
            self._began = self._clock.monotonic()
        elif not in_progress:
            self._began = None
        self._changed.set()

    def _look(self) -> float | None:
        """Report that all is written, and release the lock, where that is due. Return after how many seconds to look
        again, None = at a change."""
        if self._began is None:
            self._over_since = self._written_since = None
            return None
        now, shown = self._clock.monotonic(), self._shutdown.state.get(_NODE)
        is_over = shown is not None and shown.in_progress and shown.over
        if not is_over:
            self._over_since = None
        elif self._over_since is None:
            self._over_since = now
        if not (is_over and self._is_written()):
            self._written_since = None
        elif self._written_since is None:
            self._written_since = now
        given = ReleaseInputs(
            now=now,
            began=self._began,
            pods_seconds=self._pods_seconds,
            over_since=self._over_since,
            written_since=self._written_since,
        )
        if shown is not None and is_reported(given):
            self._reported.put(_NODE, ShutdownReported(began=shown.began), "all is written")
        if may_release(given):
            if self._watch.has_lock:
                log.info("the machine may shut down: %s", "all is written" if is_reported(given) else "time is over")
                self._watch.release()
            return None
        return next_look(given)
