"""Sends Events to the API server: correlates them, queues them and sends one at a time (pods.md 13.1).

Events that a process has not sent are still on the writers' streams, and the next process sends them under the same
names: a repeated create finds its object, and a repeated patch writes the same count. An Event that happens again after
a restart raises the count of the same object, also if the streams no longer contain the first one.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bus.messages.event import KubeEvent
from services.status.adapters.event_marks_file import EventMarksFile
from services.status.core.event_correlation import EventCorrelator
from services.status.core.event_counts import EventCounts
from services.status.core.event_marks import EventAction, EventMarks
from services.status.core.event_object import (
    event_object,
    event_patch,
    identity_of,
    is_recorded,
    name_of,
    namespace_of,
    time_of,
)
from services.status.core.event_queue import EventQueue, EventWrite
from services.status.core.event_refusal import is_namespace_gone
from shared.kube import paths
from shared.kube.interface import WRITE_TIMEOUT_SECONDS, ApiClient, ApiError, ApiStatusError
from shared.time.clock import Clock

log = logging.getLogger(__name__)

RETRY_SECONDS = 8.0  # between tries while the API server is away, so that sending resumes within ten seconds
MIN_PAUSE_SECONDS = 1.0  # between two tries, also if the first one took long
GATHER_SECONDS = 1.0  # at the start, until the streams have arrived; their events are then taken in time order
MAX_AGE_SECONDS = 3600.0  # an API server keeps events for an hour, too
MAX_INTAKE_EVENTS = 5000  # that arrive in one turn of the loop
SAVE_SECONDS = 1.0  # between two writes of the marks


class _QueuedEvent(Struct, frozen=True):
    writer: str
    key: str
    event: KubeEvent
    is_new: bool


class EventSink:
    """Sends the events that `offer` receives; `offer` never waits. `chance`: returns a number in [0, 1) for the first
    pause."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        node_name: str,
        run_dir: Path,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._clock, self._node_name, self._chance = client, clock, node_name, chance
        self._file = EventMarksFile(run_dir)
        self._marks, self._counts = EventMarks(), EventCounts()
        self._marks_read = False
        self._correlator, self._queue = EventCorrelator(), EventQueue()
        self._intake: list[_QueuedEvent] = []
        self._came, self._queued, self._to_save = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._dropped = 0  # since the queue was empty
        self._away = False
        self._refused_with: tuple[int, str] | None = None

    def offer(self, writer: str, key: str, event: KubeEvent, *, is_new: bool) -> None:
        """Take an event of this writer. One that was recorded before is recognized by (writer, key, event).

        `is_new`: it arrived after the start of this process, so it is not old even if a changed clock makes it look so.
        """
        if len(self._intake) >= MAX_INTAKE_EVENTS:
            self._overflows()
            return
        self._intake.append(_QueuedEvent(writer, key, event, is_new))
        self._came.set()

    async def run(self) -> None:
        """Send events until cancelled. It may be run again after a failure."""
        if not self._marks_read:
            marks, counts = await asyncio.to_thread(self._file.read)
            self._marks, self._counts = EventMarks(marks), EventCounts(counts)
            self._correlator = EventCorrelator(self._counts.earlier)
            self._marks_read = True
            await asyncio.sleep(GATHER_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take_in(), name="events taken in")
            tasks.create_task(self._send(), name="events sent")
            tasks.create_task(self._save(), name="events marked")

    async def _take_in(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            batch, self._intake = self._intake, []
            now = self._clock.wall()
            for offered in sorted(batch, key=lambda offered: _order(offered, now)):
                self._take_one(offered, now)

    def _take_one(self, offered: _QueuedEvent, now: float) -> None:
        writer, key, event = offered.writer, offered.key, offered.event
        when = time_of(event, now)
        identity = identity_of(writer, key, event)
        action = self._marks.take(writer, identity)
        if action is EventAction.KNOWN or not is_recorded(event):
            return
        done_before = action is EventAction.DONE_BEFORE
        correlated = self._correlator.correlate(event, name_of(event, identity, when), when, done_before=done_before)
        if done_before:  # the earlier process has written it; it only has to be counted
            if not correlated.counted_before:
                self._counts.add(correlated.key, correlated.recorded, 1)
            return
        write = EventWrite(
            namespace=namespace_of(event),
            name=correlated.name,
            body=event_object(event, correlated, self._node_name),
            is_new=correlated.count == 1,
            occurrences=((writer, identity),),
            correlated=correlated,
        )
        if correlated.is_spam or (not offered.is_new and now - when > MAX_AGE_SECONDS):
            self._done(write)
        elif self._queue.add(write):
            self._queued.set()
        else:
            self._overflows()
            self._done(write)

    async def _send(self) -> None:
        while True:
            self._queued.clear()
            write = self._queue.take()
            if write is None:
                self._emptied()
                await self._queued.wait()
                continue
            began = self._clock.monotonic()
            wait = await self._attempt(write)
            if wait is not None:
                await asyncio.sleep(max(began + wait - self._clock.monotonic(), MIN_PAUSE_SECONDS))

    async def _attempt(self, write: EventWrite) -> float | None:
        """Write the Event, or give it up. Return the seconds from the beginning of this try to the next one, None = the
        next Event can be sent at once."""
        try:
            await self._write(write)
        except ApiStatusError as error:
            self._answered()
            if error.code != 429 or error.retry_after is None:
                self._refused(write, error)
                return None
            return self._brought_back(write, error, error.retry_after)
        except ApiError as error:
            wait = RETRY_SECONDS if write.tries else RETRY_SECONDS * self._chance()
            if not self._away:
                self._away = True
                log.warning("events wait until the API server answers: %s", error)
            return self._brought_back(write, error, wait)
        except Exception as error:  # a programming error with one Event does not stop the others
            log.error("event %s/%s cannot be sent: %s", write.namespace, write.name, type(error).__name__)
        else:
            self._answered()
            self._refused_with = None
        self._done(write)
        return None

    async def _write(self, write: EventWrite) -> None:
        """Create or patch the Event. An object that exists unexpectedly is patched, and one that is missing is created.
        Raises ApiError."""
        if write.is_new:
            try:
                await self._create(write)
                return
            except ApiStatusError as error:
                if not error.already_exists:
                    raise
            if write.body["count"] == 1:
                return
        try:
            path = paths.event(write.namespace, write.name)
            await self._client.patch(path, event_patch(write.body), timeout=WRITE_TIMEOUT_SECONDS)
        except ApiStatusError as error:
            if not error.not_found:
                raise
            await self._create(write)

    async def _create(self, write: EventWrite) -> None:
        await self._client.create(paths.events(write.namespace), write.body, timeout=WRITE_TIMEOUT_SECONDS)

    def _brought_back(self, write: EventWrite, error: ApiError, wait: float) -> float | None:
        if self._queue.bring_back(write):
            return wait
        log.warning("event %s/%s is given up: %s", write.namespace, write.name, error)
        self._done(write)
        return wait

    def _refused(self, write: EventWrite, error: ApiStatusError) -> None:
        """Drop an Event that the API server refuses, and log the first of several refusals."""
        kind = (error.code, error.reason)
        quiet = is_namespace_gone(error) or self._refused_with == kind
        if not is_namespace_gone(error):
            self._refused_with = kind
        level = logging.DEBUG if quiet else logging.WARNING
        log.log(level, "event %s/%s is refused and dropped: %s", write.namespace, write.name, error)
        self._done(write)

    def _answered(self) -> None:
        if self._away:
            self._away = False
            log.info("the API server answers again; %d events wait", len(self._queue))

    def _overflows(self) -> None:
        self._dropped += 1
        if self._dropped == 1:
            log.warning("more events wait for the API server than are kept: the newest are dropped")

    def _emptied(self) -> None:
        if self._dropped:
            log.warning("%d events were dropped while too many waited for the API server", self._dropped)
            self._dropped = 0

    def _done(self, write: EventWrite) -> None:
        for writer, identity in write.occurrences:
            self._marks.done(writer, identity)
        self._counts.add(write.correlated.key, write.correlated.recorded, write.number)
        self._to_save.set()

    async def _save(self) -> None:
        while True:
            await self._to_save.wait()
            self._to_save.clear()
            await asyncio.to_thread(self._file.write, self._marks.to_save(), self._counts.to_save())
            await asyncio.sleep(SAVE_SECONDS)


def _order(offered: _QueuedEvent, now: float) -> tuple[float, str, int]:
    """Return time, writer and number of an event, by which events are sorted: a snapshot lists keys in text order."""
    number = int(offered.key) if offered.key.isdecimal() else 0
    return time_of(offered.event, now), offered.writer, number
