"""Follows a shutdown of the machine: stops the pods group by group, and publishes `node.shutdown` (node.md 3).

`core.shutdown` decides the order and the time; the core stops the pods, which start again after the boot. What follows
from a step happens after the step is on disk: a later process continues with the group and with the rest of its time.
Whether the machine shuts down comes from outside (`signalled`), and can be read there again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bus.messages.event import KubeEvent
from bus.messages.podsync import NodeShutdown
from bus.messages.streams import NODE_SHUTDOWN, SHUTDOWN_REPORTED
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.podsync.core.machine import PodSync
from services.podsync.core.pod.events import Event, NodeShutdownChanged, PodLate, PodStopped
from services.podsync.core.shutdown.record import (
    MAX_STATE_BYTES,
    STATE_FILE,
    plain_shutdown,
    read_shutdown,
    read_state_file,
    state_file,
)
from services.podsync.core.shutdown.remaining import count_by_group, remaining_pods
from services.podsync.core.shutdown.sequence import RunningPod, Shutdown, advance
from shared.files.atomic import write_atomically
from shared.metrics.family import gauge
from shared.model.shutdown_groups import MAX_STATUS_SECONDS, Groups
from shared.process.crash import crash_point
from shared.time.timestamps import rfc3339

log = logging.getLogger(__name__)

START_TIME = gauge(
    "kubelet_graceful_shutdown_start_time_seconds", "When the newest graceful shutdown began, 0 = there was none."
)
END_TIME = gauge(
    "kubelet_graceful_shutdown_end_time_seconds", "When the newest graceful shutdown ended, 0 = there was none."
)
_NODE = "node"


class ShutdownSequence:
    """Owns `node.shutdown`. `groups`: () = pods get no time, and nothing is done; `machine`: identity of the present
    boot; `now` returns steady seconds; `handle` takes events for the core; `saved` is the record of an earlier process,
    `save` saves it and returns why that failed, "" = it is saved; `published` waits until the statuses
    that the core has decided are published."""

    def __init__(
        self,
        context: Context,
        core: PodSync,
        groups: Groups,
        machine: str,
        *,
        now: Callable[[], float],
        handle: Callable[[Event], None],
        events: EventRecorder,
        saved: Any,
        save: Callable[[dict[str, Any]], Awaitable[str]],
        published: Callable[[], Awaitable[None]],
    ) -> None:
        self._clock, self._core, self._groups, self._machine = context.clock, core, groups, machine
        self._now, self._handle, self._events, self._save = now, handle, events, save
        self._published = published
        self._node_name, self._root = context.config.node_name, Path(context.config.root_dir)
        self._stream = context.bus.own(NODE_SHUTDOWN)
        self._shutdown = read_shutdown(saved, now()) if groups else None
        self._signalled: bool | None = None  # whether the machine shuts down; None = not known yet
        self._is_confirmed = False  # the core knows what was signalled
        self._signal = ""
        self._wake_at = 0.0
        self._look = asyncio.Event()
        self.on_over: Callable[[], None] = lambda: None  # called when the machine may go on, again and again
        self._over_since: float | None = None  # steady seconds since when this process waits for the report of status
        if groups:
            self._reported = context.bus.follow(SHUTDOWN_REPORTED, lambda _: self._look.set())
            self._began, self._ended = context.metrics.gauge(START_TIME), context.metrics.gauge(END_TIME)
            self._count(*self._read_state_file())

    @property
    def is_followed(self) -> bool:
        """Whether the configuration gives pods time."""
        return bool(self._groups)

    @property
    def in_progress(self) -> bool:
        """Whether the machine shuts down, as far as this process has followed it."""
        return self._shutdown is not None and self._shutdown.boot == self._machine

    @property
    def is_over(self) -> bool:
        """Whether the machine may go on: every pod has stopped, or its time is over."""
        return self.in_progress and self._shutdown is not None and self._shutdown.is_over

    def start(self) -> None:
        """Continue with what an earlier process has begun, also with a cancellation. After another boot, log what was
        not finished in time."""
        shutdown = self._shutdown
        if self.is_followed:
            doubtful = NodeShutdownChanged(in_progress=self.in_progress, is_confirmed=False, cause="podsync started")
            self._handle(doubtful)
        if shutdown is not None and shutdown.unfinished and not self.in_progress:
            log.warning(
                "in the shutdown of the machine at %s these pods had not stopped in time: %s (see shutdownGracePeriod)",
                rfc3339(shutdown.began),
                ", ".join(shutdown.unfinished),
            )
        self._publish()
        self._stream.mark_complete()
        self._look.set()

    def signalled(self, signal: str, in_progress: bool) -> None:
        """Take in whether the machine shuts down, as `signal` says. The same again changes nothing."""
        self._signalled, self._signal = in_progress, signal
        if not in_progress:
            self._over_since = None
        self._look.set()

    def pods_changed(self) -> None:
        """Decide the next step of a shutdown, because a pod may have stopped."""
        if self.in_progress:
            self._look.set()

    async def run(self) -> None:
        """Stop the pods while the machine shuts down, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_to_wait()):
                    await self._look.wait()
            self._look.clear()
            await self._turn()

    def _seconds_to_wait(self) -> float | None:
        return max(0.0, self._wake_at - self._now()) if self._wake_at else None

    async def _turn(self) -> None:
        if self._signalled and not self.in_progress:
            await self._begin()
        elif self._signalled is False and self.in_progress:
            await self._cancel()
        elif self._signalled and not self._is_confirmed:
            self._handle(NodeShutdownChanged(in_progress=True, cause="the machine still shuts down"))
        self._is_confirmed = self._is_confirmed or self._signalled is not None
        if self.in_progress and self._shutdown is not None:
            await self._advance(self._shutdown)
        if self.is_over and self._signalled:
            self._end_delay()

    def _end_delay(self) -> None:
        """Let the machine go on once status has reported that the API server has all. Where status says nothing, as
        after its end in the shutdown, wait some seconds for the process that follows it."""
        now, shown = self._now(), self._reported.state.get(_NODE)
        self._over_since = now if self._over_since is None else self._over_since
        is_reported = shown is not None and self._shutdown is not None and shown.began == rfc3339(self._shutdown.began)
        if is_reported or now >= self._over_since + MAX_STATUS_SECONDS:
            self.on_over()
        else:
            self._wake_at = self._over_since + MAX_STATUS_SECONDS

    async def _begin(self) -> None:
        shutdown = Shutdown(boot=self._machine, signal=self._signal, began=self._clock.wall())
        log.warning("the machine shuts down (%s): the pods stop, and start again after the boot", self._signal)
        await self._keep(shutdown)
        self._record("Shutdown manager detected shutdown event")
        self._handle(NodeShutdownChanged(in_progress=True, cause="the machine shuts down"))

    async def _cancel(self) -> None:
        log.warning("the shutdown of the machine was cancelled: the pods start again")
        await self._keep(None)
        self._wake_at = 0.0
        self._record("Shutdown manager detected shutdown cancellation")
        self._handle(NodeShutdownChanged(in_progress=False, cause="the shutdown was cancelled"))

    async def _advance(self, shutdown: Shutdown) -> None:
        progress = advance(shutdown, self._groups, self._remaining(), now=self._now(), wall=self._clock.wall())
        self._wake_at = progress.wake_at
        if progress.shutdown.is_over and not shutdown.is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAX_STATUS_SECONDS):
                    await self._published()
        if progress.shutdown != shutdown:
            await self._keep(progress.shutdown)
            for uid in progress.late:
                self._report_late(uid)
        if progress.shutdown.is_over and not shutdown.is_over:
            log.warning("the pods have had their time, and the machine may go on")
        for stop in progress.stops:
            event = PodStopped(uid=stop.uid, grace_seconds=stop.grace_seconds, cause="the machine shuts down")
            self._handle(event)
        self._publish()

    def _report_late(self, uid: str) -> None:
        if (tracked := self._core.tracked.get(uid)) is not None:
            log.warning("pod %s has not stopped within the time that its group has in a shutdown", tracked.description)
            self._handle(PodLate(uid=uid, cause="the machine shuts down"))

    async def _keep(self, shutdown: Shutdown | None) -> None:
        """Save the state, then publish it. Where it cannot be saved, pods stop all the same: what is lost is with which
        group the next process continues."""
        if why := await self._save(plain_shutdown(shutdown)):
            log.error("the shutdown of the machine cannot be saved: %s", why)
        crash_point("podsync.shutdown.saved")
        self._shutdown = shutdown
        if shutdown is not None:
            self._count(shutdown.began, shutdown.ended)
            await asyncio.to_thread(self._write_state_file, shutdown)
        self._publish()
        crash_point("podsync.shutdown.published")

    def _remaining(self) -> list[RunningPod]:
        known = self._core.node_state
        pods = list(self._core.tracked.values())
        return remaining_pods(pods, self._groups, volumes_known=known.volumes_known, now=self._now())

    def _publish(self) -> None:
        shutdown = self._shutdown
        if shutdown is None:
            self._stream.delete(_NODE, "there is no shutdown")
            return
        item = NodeShutdown(
            in_progress=self.in_progress,
            over=self.is_over,
            signal=shutdown.signal,
            began=rfc3339(shutdown.began),
            groups=count_by_group(self._groups, self._remaining()) if self.in_progress else (),
            group=shutdown.group if self.in_progress else -1,
            unfinished=shutdown.unfinished,
        )
        self._stream.put(_NODE, item, "the machine shuts down" if self.in_progress else "the last shutdown")

    def _record(self, message: str) -> None:
        event = KubeEvent(type="Normal", reason="Shutdown", message=message, kind="Node", name=self._node_name)
        self._events.record(event)

    def _count(self, began: float, ended: float) -> None:
        self._began.set(began)
        self._ended.set(ended)

    def _write_state_file(self, shutdown: Shutdown) -> None:
        try:
            write_atomically(self._root / STATE_FILE, state_file(shutdown), 0o644)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._root / STATE_FILE, error)

    def _read_state_file(self) -> tuple[float, float]:
        try:
            with (self._root / STATE_FILE).open("rb") as file:
                return read_state_file(file.read(MAX_STATE_BYTES + 1))
        except FileNotFoundError:
            return 0.0, 0.0
        except OSError as error:
            log.warning("%s cannot be read: %s", self._root / STATE_FILE, error)
            return 0.0, 0.0
