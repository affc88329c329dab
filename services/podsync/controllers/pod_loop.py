"""Calls the core, as the only module: gives it events, gives its instructions to the workers, and sets its timer.
Writes the story of each pod, records Events, and marks the streams of pods complete.
"""

import asyncio
import logging
from collections.abc import Callable

from bus.stream import EventRecorder
from services.frame.launch import Context
from services.frame.pod_errors import PodErrors
from services.podsync.adapters.calls.runtime_calls import PodView, RuntimeCalls
from services.podsync.adapters.steady_clock import SteadyClock
from services.podsync.adapters.story import StoryFiles, uid_of
from services.podsync.controllers.housekeeping import Housekeeping
from services.podsync.controllers.pod_metrics import PodMetrics
from services.podsync.controllers.pod_start_metrics import PodStartMetrics
from services.podsync.controllers.pod_streams import PodStreams
from services.podsync.controllers.pod_workers import PodWorkers
from services.podsync.core.machine import PodSync
from services.podsync.core.pod.claim_status import needed_claims
from services.podsync.core.pod.events import Event, TimePassed
from services.podsync.core.pod.instructions import (
    Call,
    ForgetPod,
    Instruction,
    RecordEvent,
    ReportInternalError,
    WakeAt,
)
from shared.files.checkpoint import Checkpoint
from shared.model.frozen_copy import replace

log = logging.getLogger(__name__)

DECISION = "the decision"


class PodLoop:
    """Runs the core. `handle` takes every event of the process; `start` comes first, `close` last."""

    def __init__(
        self,
        context: Context,
        core: PodSync,
        checkpoint: Checkpoint,
        steady: SteadyClock,
        stories: StoryFiles,
        calls: RuntimeCalls,
        events: EventRecorder,
        housekeeping: Housekeeping,
        streams: PodStreams,
    ) -> None:
        self.core = core
        self._clock, self._steady, self._stories, self._calls = context.clock, steady, stories, calls
        self._events, self._housekeeping, self._streams = events, housekeeping, streams
        for tracked in core.tracked.values():
            stories.take_up(tracked.uid, name=tracked.name, namespace=tracked.namespace, source=tracked.saved.source)
        for uid, why in core.node_state.unreadable.items():
            log.error("the record of pod %s cannot be used and the pod is admitted again: %s", uid, why)
        self._pod_errors = PodErrors(log, context.bus.trouble, context.clock)
        self._unshown: set[str] | None = (
            None  # UIDs without a published status; None = not all is listed yet, or every status is published
        )
        starts = PodStartMetrics(context.metrics, context.clock, context.bus, core.tracked.get)
        self.metrics = PodMetrics(context.metrics, context.clock, starts)
        self.on_handled: Callable[[], None] = lambda: None  # called after each event
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at = float("inf")
        self.workers = PodWorkers(
            checkpoint=checkpoint,
            streams=streams,
            perform=self._perform,
            end_reads=calls.end_reads,
            finished=self.handle,
            settled=self.metrics.settled,
            trouble=context.bus.trouble,
            clock=context.clock,
            deadlines=context.deadlines,
            tracer=context.tracer,
        )

    def start(self) -> None:
        """Run the core's first decisions, which continue from the checkpoint."""
        self._dispatch(self.core.start(self._now()))

    def complete(self) -> None:
        """Mark the streams of admitted pods complete, once sources and runtime have listed all they have. Any earlier,
        after a lost checkpoint, volume would remove the volumes of running pods."""
        self.workers.when_done(self._streams.complete_admitted)
        self._housekeeping.all_known.set()
        self._housekeeping.pods_changed()
        self._unshown = set(self.core.tracked)
        self._complete_statuses()

    def handle(self, event: Event) -> None:
        """Give an event to the core and its instructions to the workers. An exception of the core is logged and only
        this event is lost: other pods continue."""
        now = self._now()
        uid = uid_of(event)
        if uid:
            self._stories.add(uid, self._clock.wall(), event)
        self.metrics.resizes.happened(event, self.core.tracked.get(uid))
        try:
            instructions = self.core.handle(event, now)
        except Exception as error:
            self._pod_errors.note(uid, f"event {type(event).__name__}", error)
            return
        self._pod_errors.succeeded(uid, f"event {type(event).__name__}")
        if not any(isinstance(instruction, ReportInternalError) for instruction in instructions):
            self._pod_errors.succeeded(uid, DECISION)
        self._dispatch(instructions)
        for touched in dict.fromkeys((uid, *map(uid_of, instructions))):
            if (tracked := self.core.tracked.get(touched)) is not None:
                self._stories.add_wait(touched, self._clock.wall(), tracked.waits_for)
            elif touched:
                self._stories.forget(
                    touched
                )  # the event was about a pod that is gone, such as that its volumes are gone
        self._complete_statuses()
        self.on_handled()

    def _complete_statuses(self) -> None:
        """Mark the stream of statuses complete once this process has listed each pod of an earlier process."""
        if self._unshown is None:
            return
        unshown = (self.core.tracked.get(uid) for uid in self._unshown)
        self._unshown = {r.uid for r in unshown if r is not None and r.saved.pod and not r.may_be_shown} or None
        if self._unshown is None:
            self.workers.when_done(self._streams.complete_statuses)

    def _now(self) -> float:
        now = self._steady.now()
        self.core.node_state.skew = self._steady.skew
        return now

    def _dispatch(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WakeAt):
                self._wake_earlier(instruction.when)
                continue
            if isinstance(instruction, ReportInternalError):
                self._pod_errors.note(instruction.uid, DECISION, instruction.error, instruction.cause)
                continue
            uid = uid_of(instruction)
            self._stories.add(uid, self._clock.wall(), instruction)
            if isinstance(instruction, RecordEvent):
                self.metrics.recorded(uid, instruction.event)
                with self._pod_errors.contained(uid, "an Event"):
                    self._events.record(replace(instruction.event, time=""), cause=instruction.cause)
                continue
            if isinstance(instruction, ForgetPod):
                if self._unshown is not None:
                    self._unshown.discard(uid)
                self._pod_errors.forget(uid)
                self._stories.forget(uid)
                self._stories.keep_newest(self.core.tracked)
            self.metrics.instructed(uid, instruction)
            self.workers.add(uid, instruction)

    async def _perform(self, call: Call) -> Event:
        tracked = self.core.tracked[call.uid]
        view = PodView(
            uid=tracked.uid,
            name=tracked.name,
            namespace=tracked.namespace,
            pod=tracked.saved.pod,
            volumes=tracked.volumes,
            claims=tracked.claims,
            needed_claims=needed_claims(tracked.saved),
            allocation=tracked.saved.allocation,
            placement=tracked.saved.placement,
            static=tracked.is_static,
            quiet=not tracked.alive and len(tracked.ready_sandboxes) <= 1,
            sandbox_of={c.id: c.sandbox_id for c in tracked.instances},
            host_ips=self.core.node_ips,
            resources=tracked.status.get("resources") or {},
        )
        began = self.metrics.calling(call)
        outcome = await self._calls.perform(call, view)
        self.metrics.called(call, tracked.saved.pod, outcome, began)
        return outcome

    def _wake_earlier(self, when: float) -> None:
        if when >= self._wake_at:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = when
        delay = max(0.0, when - self._now())
        self._wake = asyncio.get_running_loop().call_later(delay, self._wake_up)

    def _wake_up(self) -> None:
        self._wake, self._wake_at = None, float("inf")
        self.handle(TimePassed(cause="a time to wait was over"))

    async def close(self) -> None:
        """End the calls of all pods that are under way."""
        await self.workers.close()
