"""podsync's wiring: streams become events, the core decides, instructions are done in the order save, publish, act.

One lane per pod keeps their order; its one call runs beside the lane, so that changes are published meanwhile.
"""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from bus.event_recorder import EventRecorder
from bus.messages.pleg import NodeObserved
from bus.messages.streams import NODE_CONDITIONS, NODE_RESOURCES, PODS_ADMITTED, PODS_STATUS, events_of
from services.frame.generation import supervisor_generation
from services.frame.launch import Context
from services.frame.pod_errors import PodErrors
from services.podsync.adapters.calls.runtime_calls import PodView, calls_over
from services.podsync.adapters.cluster_reads import SourcesReads
from services.podsync.adapters.lanes import Lanes
from services.podsync.adapters.node.node_facts_reader import read_machine_facts, read_node_resources
from services.podsync.adapters.pod.subpaths import AskedSubpaths
from services.podsync.adapters.steady_clock import SteadyClock
from services.podsync.adapters.story import StoryBook, uid_of
from services.podsync.controllers.followers import Followers
from services.podsync.controllers.housekeeping import Housekeeping
from services.podsync.core.machine import PodSync, Settings
from services.podsync.core.node.pressure import Pressure, read_transitions
from services.podsync.core.pod.events import Event, TimePassed
from services.podsync.core.pod.instructions import (
    Call,
    ForgetPod,
    Instruction,
    RecordEvent,
    ReportInternalError,
    WakeAt,
)
from services.podsync.core.pod.record import PodRecord
from shared.checkpoint import Checkpoint
from shared.cri.client import CriRuntime
from shared.cri.interface import Runtime

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
DECISION = "the decision"


class PodSyncService:
    """The process. Owns the core and is the only one to call it."""

    def __init__(self, context: Context, runtime: Runtime) -> None:
        config, self.clock, self.bus, self._deadlines = context.config, context.clock, context.bus, context.deadlines
        state = Path(config.root_dir) / "bulkhead" / "podsync"
        spare = Path(config.run_dir) / "spare" / "podsync"
        self.checkpoint = Checkpoint(state / "pods", spare / "pods")
        self.node_checkpoint = Checkpoint(state / "node", spare / "node")
        self._unshown: list[PodRecord] | None = None  # None = not all is told, or every status is out
        self._pod_errors = PodErrors(log, self.bus.trouble, self.clock)
        node = self.node_checkpoint.load_all()
        self._steady = SteadyClock(self.clock, self.node_checkpoint, node.get("boot", {}))
        self.stories = StoryBook(state / "stories", self._steady.boot, machine_started=self._steady.machine_started)
        self.calls = calls_over(runtime, config, self.clock)
        self.calls.subpaths = AskedSubpaths(self.bus)
        if config.joins_cluster:
            self.calls.cluster = SourcesReads(self.bus, config.node_name)
        settings = Settings(
            boot=self._steady.boot,
            started_at=self.clock.monotonic(),
            maximum_backoff=config.max_container_restart_period,
            sync_seconds=config.sync_frequency,
            node_ips=self.calls.facts.node_ips,
            facts=read_machine_facts(config),
            joins_cluster=config.joins_cluster,
            agent_start=supervisor_generation(),
        )
        self.core = PodSync(settings, self.checkpoint.load_all())
        for r in self.core.records.values():
            self.stories.take_up(r.uid, name=r.name, namespace=r.namespace, source=r.saved.source)
        for uid, why in self.core.node_state.unreadable.items():
            log.error("the record of pod %s is of no use and the pod is taken on anew: %s", uid, why)
        self.pressure = Pressure(
            thresholds=config.eviction_hard,
            transition_period=config.eviction_pressure_transition_period,
            transitions=read_transitions(node.get("pressure")),
        )
        self.runtime = runtime
        self.admitted = self.bus.own(PODS_ADMITTED)
        self.statuses = self.bus.own(PODS_STATUS)
        self.conditions = self.bus.own(NODE_CONDITIONS)
        self.resources = self.bus.own(NODE_RESOURCES)
        self.resources.put("node", read_node_resources(config))
        self.resources.mark_complete()
        self.events = EventRecorder(self.bus.own(events_of("podsync")), self.clock)
        self.calls.record = self.events.record
        self.calls.tell_of_resolv_conf()
        self.lanes = Lanes(
            checkpoint=self.checkpoint,
            admitted=self.admitted,
            statuses=self.statuses,
            perform=self._perform,
            finished=self._handle,
            trouble=self.bus.trouble,
            clock=self.clock,
            deadlines=self._deadlines,
        )
        self.housekeeping = Housekeeping(
            config=config,
            runtime=runtime,
            calls=self.calls,
            core=self.core,
            events=self.events,
            trouble=self.bus.trouble,
            clock=self.clock,
        )
        self.followers = Followers(
            self.bus, handle=self._handle, all_told=self._all_told, node_observed=self._judge_pressure
        )
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at = float("inf")

    async def run(self) -> None:
        """Go on from the checkpoint; then report once a second that no lane is overdue."""
        self._dispatch(self.core.start(self._now()))
        housekeeping = self.housekeeping.start()
        try:
            while True:
                if self._deadlines.overdue() is None:
                    self.bus.progress("sync")
                self.bus.trouble("blocked", self._deadlines.blocked())
                await asyncio.sleep(TICK_SECONDS)
        finally:
            housekeeping.cancel()
            await self.lanes.close()
            await self.calls.close()
            await self.runtime.close()
            await asyncio.to_thread(self.stories.close)

    def _all_told(self) -> None:
        """What we have taken on is all there is, once sources and runtime have told all they know: not earlier, or a
        lost checkpoint would make volume take the volumes of running pods away."""
        self.lanes.when_done(self.admitted.mark_complete)
        self.housekeeping.all_known = True
        self._unshown = list(self.core.records.values())
        self._complete_statuses()

    def _complete_statuses(self) -> None:
        """Every status is out once each pod of an earlier life was looked at in this one."""
        if self._unshown is None:
            return
        of_pods = (record for record in self._unshown if record.pod and not record.may_be_shown)
        self._unshown = [record for record in of_pods if self.core.records.get(record.uid) is record] or None
        if self._unshown is None:
            self.lanes.when_done(self.statuses.mark_complete)

    def _now(self) -> float:
        now = self._steady.now()
        self.core.node_state.skew = self._steady.skew
        return now

    def _judge_pressure(self, observed: NodeObserved) -> tuple[str, ...]:
        """Judge the signals; returns the conditions that are True."""
        self.calls.handlers = observed.runtime_handlers
        before = dict(self.pressure.transitions)
        judged = self.pressure.judge(observed, self.clock.wall())
        self.conditions.put("node", judged)
        if self.pressure.transitions != before:
            saved = {kind: list(entry) for kind, entry in self.pressure.transitions.items()}
            self.lanes.save_soon(self.node_checkpoint, "pressure", saved)
        return tuple(c["type"] for c in judged.conditions if c["status"] == "True")

    def _handle(self, event: Event) -> None:
        """The one way into the core. A bug in it must not end the process: the other pods go on."""
        now = self._now()
        uid = uid_of(event)
        if uid:
            self.stories.tell(uid, self.clock.wall(), event)
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
            if (record := self.core.records.get(touched)) is not None:
                self.stories.tell_wait(touched, self.clock.wall(), record.waits_for)
            elif touched:
                self.stories.forget(touched)  # news of a pod that is gone, such as that its volumes are
        self._complete_statuses()

    def _dispatch(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WakeAt):
                self._wake_earlier(instruction.when)
                continue
            if isinstance(instruction, ReportInternalError):
                self._pod_errors.note(instruction.uid, DECISION, instruction.error, instruction.cause)
                continue
            uid = uid_of(instruction)
            self.stories.tell(uid, self.clock.wall(), instruction)
            if isinstance(instruction, RecordEvent):
                with self._pod_errors.contained(uid, "an Event"):
                    self.events.record(replace(instruction.event, time=""), cause=instruction.cause)
                continue
            if isinstance(instruction, ForgetPod):
                self._pod_errors.forget(uid)
                self.stories.forget(uid)
                self.stories.keep_newest(self.core.records)
            self.lanes.add(uid, instruction)

    async def _perform(self, call: Call) -> Event:
        record = self.core.records[call.uid]
        view = PodView(
            uid=record.uid,
            name=record.name,
            namespace=record.namespace,
            pod=record.pod,
            volumes=record.volumes,
            active_pods=self.housekeeping.active_pods,
            wanted=lambda: record.state == "sync",
            static=record.is_static,
            quiet=not record.alive and len(record.ready_sandboxes) <= 1,
            sandbox_of={c.id: c.sandbox_id for c in record.instances},
            host_ips=self.core.node_ips,
        )
        return await self.calls.perform(call, view)

    def _wake_earlier(self, when: float) -> None:
        if when >= self._wake_at:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = when
        delay = max(0.0, when - self._now())
        self._wake = asyncio.get_running_loop().call_later(delay, self._woken)

    def _woken(self) -> None:
        self._wake, self._wake_at = None, float("inf")
        self._handle(TimePassed(cause="a time to wait was over"))


def build(context: Context) -> PodSyncService:
    """The service over the configured runtime."""
    config = context.config
    runtime = CriRuntime(
        config.container_runtime_endpoint, config.image_service_endpoint, config.runtime_request_timeout, pids=False
    )
    return PodSyncService(context, runtime)
