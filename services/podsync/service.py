"""podsync's wiring: streams become events, the core decides, instructions are done in the order save, publish, act.

One lane per pod keeps the order of its instructions; its one call under way runs beside the lane, so that news of the
pod is saved and published meanwhile.
"""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from bus.event_recorder import EventRecorder
from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.pleg import NodeObserved
from bus.messages.sources import DesiredPod
from bus.messages.streams import (
    NODE_CONDITIONS,
    NODE_OBSERVED,
    PODS_ADMITTED,
    PODS_DESIRED,
    PODS_STATUS,
    RUNTIME_PODS,
    VOLUMES_MOUNTED,
    events_of,
)
from bus.messages.volume import MountedVolumes
from services.launch import Context
from services.podsync.adapters.lanes import Lanes
from services.podsync.adapters.runtime_calls import PodView, calls_over
from services.podsync.adapters.story import StoryBook, uid_of
from services.podsync.core.events import (
    Event,
    PodDesired,
    PodObserved,
    PodUndesired,
    PodVanished,
    RuntimeChanged,
    SourcesHeard,
    TimePassed,
    VolumesChanged,
    VolumesHeard,
)
from services.podsync.core.instructions import Call, ForgetPod, Instruction, RecordEvent, WakeAt
from services.podsync.core.machine import PodSync, Settings
from services.podsync.core.pressure import Pressure, read_transitions
from shared.checkpoint import Checkpoint, Kept
from shared.cri.client import CriRuntime
from shared.cri.interface import Runtime
from shared.model.runtime import RuntimePod

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0


class PodSyncService:
    """The process. Owns the core and is the only one to call it."""

    def __init__(self, context: Context, runtime: Runtime) -> None:
        config, self.clock, self.bus = context.config, context.clock, context.bus
        state = Path(config.root_dir) / "bulkhead" / "podsync"
        spare = Path(config.run_dir) / "spare" / "podsync"
        self.checkpoint = Checkpoint(state / "pods", spare / "pods")
        self.node_checkpoint = Checkpoint(state / "node", spare / "node")
        self.stories = StoryBook(state / "stories")
        node = self.node_checkpoint.load_all()
        count = node.get("boot", {}).get("count", 0)
        boot = self._count_boot(count + 1 if isinstance(count, int) else int(self.clock.wall()))
        self.calls = calls_over(runtime, config, self.clock)
        settings = Settings(
            boot=boot,
            started_at=self.clock.monotonic(),
            maximum_backoff=config.max_container_restart_period,
            sync_seconds=config.sync_frequency,
            node_ips=self.calls.facts.node_ips,
        )
        self.core = PodSync(settings, self.checkpoint.load_all())
        for uid, why in self.core.known.unreadable.items():
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
        self.events = EventRecorder(self.bus.own(events_of("podsync")), self.clock)
        self.lanes = Lanes(
            checkpoint=self.checkpoint,
            admitted=self.admitted,
            statuses=self.statuses,
            perform=self._perform,
            finished=self._handle,
            trouble=self.bus.trouble,
            clock=self.clock,
        )
        self.desired = self.bus.follow(PODS_DESIRED, self._on_desired)
        self.observed = self.bus.follow(RUNTIME_PODS, self._on_observed)
        self.bus.follow(VOLUMES_MOUNTED, self._on_volumes)
        self.bus.follow(NODE_OBSERVED, self._on_node)
        self._complete = False
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at = float("inf")

    async def run(self) -> None:
        """Go on from the checkpoint; then one turn a second shows that the loop lives."""
        self._dispatch(self.core.start(self.clock.wall()))
        try:
            while True:
                self.bus.progress("sync")
                await asyncio.sleep(TICK_SECONDS)
        finally:
            await self.lanes.close()
            await self.runtime.close()

    def _count_boot(self, boot: int) -> int:
        """The number of this life, larger than any before even where it cannot be written down."""
        if self.node_checkpoint.save("boot", {"count": boot}) is not Kept.ON_DISK:
            boot = max(boot, int(self.clock.wall()))
        return boot

    # --- streams to events ---------------------------------------------------------------------------------------

    def _on_desired(self, change: Change[DesiredPod]) -> None:
        match change:
            case Put(key=uid, value=wanted, cause=cause):
                why = cause or f"{wanted.source} wants the pod"
                self._handle(PodDesired(uid=uid, source=wanted.source, pod=wanted.pod, cause=why))
            case Deleted(key=uid, cause=cause):
                self._handle(PodUndesired(uid=uid, cause=cause or "no source wants the pod"))
            case Freshness(complete=complete, stale=stale):
                listed = frozenset(self.desired.state)
                self._handle(SourcesHeard(complete=complete, stale=stale, listed=listed, cause="news of the sources"))
                self._mark_complete()

    def _on_observed(self, change: Change[RuntimePod]) -> None:
        match change:
            case Put(value=observation, cause=cause):
                self._handle(PodObserved(observation=observation, cause=cause or "seen in the runtime"))
            case Deleted(key=uid, cause=cause):
                self._handle(PodVanished(uid=uid, cause=cause or "gone from the runtime"))
            case Freshness():
                self._mark_complete()

    def _mark_complete(self) -> None:
        """What we have taken on is all there is, once sources and runtime have told all they know: not earlier, or a
        lost checkpoint would make volume take the volumes of running pods away."""
        if self.desired.complete and self.observed.complete and not self._complete:
            self._complete = True
            self.lanes.when_done(self._say_complete)

    def _say_complete(self) -> None:
        self.admitted.mark_complete()
        self.statuses.mark_complete()

    def _on_volumes(self, change: Change[MountedVolumes]) -> None:
        match change:
            case Put(key=uid, value=volumes, cause=cause):
                self._handle(VolumesChanged(uid=uid, volumes=volumes, cause=cause or "volumes changed"))
            case Deleted(key=uid, cause=cause):
                self._handle(VolumesChanged(uid=uid, volumes=None, cause=cause or "volumes gone"))
            case Freshness(complete=complete, stale=stale):
                self._handle(VolumesHeard(complete=complete, stale=stale, cause="news of the volumes"))

    def _on_node(self, change: Change[NodeObserved]) -> None:
        if not isinstance(change, Put):
            return
        observed = change.value
        before = dict(self.pressure.transitions)
        self.conditions.put("node", self.pressure.judge(observed, self.clock.wall()))
        if self.pressure.transitions != before:
            saved = {kind: list(entry) for kind, entry in self.pressure.transitions.items()}
            self.lanes.save_soon(self.node_checkpoint, "pressure", saved)
        self._handle(
            RuntimeChanged(
                reachable=observed.runtime_reachable,
                network_ready=observed.network_ready,
                network_message=observed.network_message,
                runtime_name=observed.runtime_name,
                cause="the runtime changed",
            )
        )

    # --- deciding and doing --------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        """The one way into the core. A bug in it must not end the process: the other pods go on."""
        now = self.clock.wall()
        uid = uid_of(event)
        if uid:
            self.stories.tell(uid, now, event)
        try:
            instructions = self.core.handle(event, now)
        except Exception:
            log.exception("podsync cannot take in %s of pod %s", type(event).__name__, uid or "-")
            self.bus.trouble(f"event {type(event).__name__}", f"pod {uid or '-'}: an event was dropped, see the log")
            return
        self._dispatch(instructions)

    def _dispatch(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WakeAt):
                self._wake_earlier(instruction.when)
                continue
            uid = uid_of(instruction)
            self.stories.tell(uid, self.clock.wall(), instruction)
            if isinstance(instruction, RecordEvent):
                self.events.record(replace(instruction.event, time=""), cause=instruction.cause)
                continue
            if isinstance(instruction, ForgetPod):
                self.stories.keep_newest(set(self.core.records))
            self.lanes.add(uid, instruction)

    async def _perform(self, call: Call) -> Event:
        record = self.core.records[call.uid]
        active = tuple(r.pod for r in self.core.records.values() if r.pod and r.state == "sync")
        view = PodView(
            uid=record.uid,
            name=record.name,
            namespace=record.namespace,
            pod=record.pod,
            volumes=record.volumes,
            active_pods=active,
        )
        return await self.calls.perform(call, view)

    def _wake_earlier(self, when: float) -> None:
        if when >= self._wake_at:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = when
        delay = max(0.0, when - self.clock.wall())
        self._wake = asyncio.get_running_loop().call_later(delay, self._woken)

    def _woken(self) -> None:
        self._wake, self._wake_at = None, float("inf")
        self._handle(TimePassed(cause="a time to wait was over"))


def build(context: Context) -> PodSyncService:
    """The service over the configured runtime."""
    config = context.config
    runtime = CriRuntime(
        config.container_runtime_endpoint, config.image_service_endpoint, config.runtime_request_timeout
    )
    return PodSyncService(context, runtime)
