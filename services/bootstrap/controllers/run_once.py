"""Follows the pods of a run once, records the outcome of each, and ends supervisord when all are done.

The record is on disk before the end is requested: a bootstrap that is killed in between requests it again.
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

from bus.messages.beat import Beat
from bus.messages.streams import PODS_DESIRED, PODS_STATUS
from services.bootstrap.adapters import supervisord
from services.bootstrap.core.run_once import advance, progress
from services.frame.generation import same_supervisord
from services.frame.launch import Context
from shared.agent.run_once import load_record, save_record
from shared.model.run_once import RunOnceRecord

log = logging.getLogger(__name__)

_TURN_SECONDS = 5.0  # between two checks, because no event shows that a pod's time to start is over


class RunOnce:
    """Runs a run once. `generation`: of the supervisord that started us."""

    def __init__(self, context: Context, generation: str) -> None:
        self._context, self._run_dir = context, Path(context.config.run_dir)
        self._changed = asyncio.Event()
        self._desired = context.bus.follow(PODS_DESIRED, self._note)
        self._statuses = context.bus.follow(PODS_STATUS, self._note)
        self._problems: tuple[str, ...] | None = None  # None = sources has not reported yet
        context.bus.on_beat(self._take_beat)
        record = load_record(self._run_dir)
        if record is None or not (generation == record.generation or same_supervisord(generation, record.generation)):
            record = RunOnceRecord(generation=generation, began=context.clock.monotonic())
        self._record = record

    async def run(self) -> None:
        """Run until cancelled, which the end of supervisord causes."""
        while True:
            self._changed.clear()
            self._look()
            if self._record.complete and await asyncio.to_thread(self._end):
                await asyncio.Event().wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TURN_SECONDS):
                    await self._changed.wait()

    def _look(self) -> None:
        streams: tuple[Any, ...] = (self._desired, self._statuses)
        if self._problems is None or any(not stream.complete or stream.stale for stream in streams):
            return
        now = self._context.clock.monotonic()
        record = advance(self._record, self._desired.state.values(), self._statuses.state, self._problems, now)
        if record == self._record:
            return
        try:
            save_record(self._run_dir, record)
        except OSError as error:
            self._context.bus.trouble("run once", f"{self._run_dir}: cannot be written: {error.strerror}")
            return
        self._context.bus.trouble("run once", None)
        for line in progress(self._record, record):
            log.info("%s", line)
        self._record = record

    def _end(self) -> bool:
        """Request supervisord to end, and return whether that succeeded. Blocks."""
        if (parent := supervisord.Supervisord.of_environment()) is None:
            return True
        try:
            parent.shut_down()
        except supervisord.SupervisordError as error:
            log.error("%s; it is requested again", error)
            return False
        return True

    def _note(self, _change: object) -> None:
        self._changed.set()

    def _take_beat(self, beat: Beat) -> None:
        if beat.service != "sources" or not self._desired.complete:
            return  # its reports about manifests count once it has read all of them
        config = self._context.config
        places = [place for place in (config.static_pod_path, config.static_pod_url and "staticPodURL") if place]
        problems = tuple(sorted(line for line in beat.troubles if any(place in line for place in places)))
        if problems != self._problems:
            self._problems = problems
            self._changed.set()
