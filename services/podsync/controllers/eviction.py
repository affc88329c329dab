"""Evaluates the eviction thresholds at each reading of the node, publishes `node.pressure`, and evicts pods, one at a
time (node.md 5.3).

When a threshold is met for long enough, these steps follow: an event of the node; on a full filesystem the removal of
dead containers of finished pods, then of unused images; if that is not enough, the eviction of the first pod of the
ranking, and of the next one when the first has ended, or 30 s later. The decision is saved with each pod: after
a kill the eviction of a pod continues.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import Any

from bus.interface import Change, NoAnswerError, Put, RequestRefusedError
from bus.messages.event import KubeEvent
from bus.messages.podsync import PodState
from bus.messages.streams import NODE_PRESSURE, NODE_USAGE
from bus.messages.usage import FoundUsage, GetUsage, NodeUsage, PodUsage
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.podsync.controllers.container_collection import ContainerCollection
from services.podsync.core.eviction import cycle
from services.podsync.core.eviction.local_storage import has_limit, limit_exceeded
from services.podsync.core.eviction.message import EVICTED, eviction_text, node_event
from services.podsync.core.eviction.pressure_conditions import node_pressure, read_transitions, transitions_of
from services.podsync.core.eviction.ranking import Candidate, rank
from services.podsync.core.eviction.signals import Layout, layout_of, readings
from services.podsync.core.eviction.thresholds import (
    EvictionConfiguration,
    Threshold,
    may_reclaim_containers,
    may_reclaim_images,
    thresholds_of,
)
from services.podsync.core.machine import PodSync
from services.podsync.core.pod.events import Event, NodePressureChanged, PodEvicted
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.config.gate_releases import enabled
from shared.metrics.family import counter

log = logging.getLogger(__name__)

HARD_GRACE_SECONDS = 1
MAX_WAIT_SECONDS = 30.0  # for an evicted pod to end, before the next one is evicted
REST_SECONDS = 10.0  # after a threshold for which nothing could be done
MAX_READING_AGE_SECONDS = 1.0  # of the readings that a pod is chosen by

EVICTIONS = counter("kubelet_evictions", "Evicted pods by the signal or limit that was crossed.", "eviction_signal")


class Eviction:
    """Evicts pods, and owns the stream `node.pressure`. `now` returns steady seconds; `handle` takes events for the
    core; `remove_images` removes unused images; `save` saves the transitions of the conditions, `saved` are those of an
    earlier process; `huge_pages`: bytes that thresholds of memory leave out."""

    def __init__(
        self,
        context: Context,
        core: PodSync,
        now: Callable[[], float],
        handle: Callable[[Event], None],
        events: EventRecorder,
        remove_images: Callable[[], Awaitable[None]],
        *,
        saved: Any,
        save: Callable[[dict[str, Any]], None],
        huge_pages: int = 0,
    ) -> None:
        config = context.config
        self._clock = context.clock
        self._bus = context.bus
        self._core = core
        self._now = now
        self._handle = handle
        self._events = events
        self._remove_images = remove_images
        self._save = save
        self._node_name = config.node_name
        self._configured = EvictionConfiguration(
            hard=config.eviction_hard,
            soft=config.eviction_soft,
            soft_grace=config.eviction_soft_grace_period,
            minimum_reclaim=config.eviction_minimum_reclaim,
            enforce_pods="pods" in config.enforce_node_allocatable,
        )
        self._max_grace = config.eviction_max_pod_grace_period
        self._transition_seconds = config.eviction_pressure_transition_period
        self._limits_storage = config.local_storage_capacity_isolation
        self._evictions = context.metrics.counter(EVICTIONS)
        self._separate_disks = enabled(config.feature_gates, "KubeletSeparateDiskGC")
        self._huge_pages = huge_pages
        self._layout: Layout | None = None
        self._thresholds: tuple[Threshold, ...] = ()
        self._memory = cycle.CycleState()
        self._act_on: tuple[Threshold, ...] = ()  # of the newest reading, not yet acted on
        self._read_at = float("-inf")
        self._rest_until = float("-inf")
        self._readings: Mapping[str, Any] = {}
        self._transitions = read_transitions(saved)
        self._conditions = self._bus.own(NODE_PRESSURE)
        self._bus.follow(NODE_USAGE, self._on_node)
        self.dead_containers = ContainerCollection(context, core, handle, events.record)
        self._act_now = asyncio.Event()
        self._pod_changed = asyncio.Event()

    def start(self) -> None:
        """Restore the conditions of an earlier process: pods are admitted by them until the node is read."""
        pressed = tuple(kind for kind, (status, _) in self._transitions.items() if status == "True")
        if pressed:
            self._handle(NodePressureChanged(conditions=pressed, cause="podsync started"))

    def pods_changed(self) -> None:
        """Check again whether evicted pods have ended: a pod may have."""
        self._pod_changed.set()
        self.dead_containers.pods_changed()

    async def run(self) -> None:
        """Act on thresholds, and collect dead containers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.dead_containers.run(), name="dead-containers")
            tasks.create_task(self._act_on_thresholds(), name="thresholds")

    async def _act_on_thresholds(self) -> None:
        while True:
            await self._act_now.wait()
            self._act_now.clear()
            if self._clock.monotonic() < self._rest_until:
                continue
            while await self._cycle():
                pass

    async def _cycle(self) -> bool:
        """Enforce limits, then act on the first threshold. Return whether to do so again at once, with a newer
        reading."""
        evicted = await self._enforce_storage_limits()
        if await self._wait_for_evicted() or evicted:  # the last reading is from before they ended
            await self._read_again()
        act_on, self._act_on = self._act_on, ()
        if not act_on:
            return False
        if await self._act(act_on[0]):
            await self._wait_for_evicted()
            return await self._read_again()
        self._rest_until = self._clock.monotonic() + REST_SECONDS
        return False

    def _on_node(self, change: Change[NodeUsage]) -> None:
        if isinstance(change, Put):
            self._evaluate(change.value)

    async def _enforce_storage_limits(self) -> bool:
        """Evict the pods that exceed a limit of local storage (node.md 5.8). Return whether there were any."""
        limited = [tracked.uid for tracked in self._running() if has_limit(tracked.saved.pod)]
        if not limited or not self._limits_storage or self._layout is None:
            return False
        if (usages := await self._usages(GetUsage())) is None:
            return False
        evicted = False
        for tracked in self._running():
            if tracked.uid in limited:
                candidate = Candidate(uid=tracked.uid, pod=tracked.saved.pod, usage=usages.get(tracked.uid))
                if (exceeded := limit_exceeded(candidate, self._layout)) is not None:
                    self._evict(tracked, exceeded[0], exceeded[1], HARD_GRACE_SECONDS)
                    evicted = True
        return evicted

    def _running(self) -> list[TrackedPod]:
        active = self._core.node_state.admissions.active()
        return [tracked for tracked in active if tracked.saved.state is PodState.SYNC]

    def _evaluate(self, usage: NodeUsage) -> None:
        """Evaluate a reading. One that arrives twice, by the stream and as an answer, counts once."""
        if usage.read_at <= self._read_at:
            return
        self._read_at = usage.read_at
        if self._layout is None:
            self._layout = layout_of(usage, separate_disks=self._separate_disks)
            if self._layout is not None:
                self._thresholds = thresholds_of(self._configured, self._layout)
        self._readings = readings(usage, self._huge_pages)
        now = self._clock.monotonic()
        evaluated = cycle.evaluate(self._memory, self._thresholds_now(), self._readings, now, self._transition_seconds)
        self._memory, self._act_on = evaluated.memory, evaluated.act_on
        self._publish(evaluated.conditions)
        self._act_now.set()

    def _thresholds_now(self) -> tuple[Threshold, ...]:
        """Return all thresholds, but those of filesystems only once the layout of these is known."""
        if self._layout is not None:
            return self._thresholds
        thresholds = thresholds_of(self._configured, Layout.SINGLE)
        return tuple(threshold for threshold in thresholds if not cycle.is_of_filesystem(threshold))

    def _publish(self, conditions: Set[str]) -> None:
        before = self._transitions
        self._transitions = transitions_of(before, conditions, self._clock.wall())
        if self._transitions != before:
            self._save({kind: list(entry) for kind, entry in self._transitions.items()})
        pressed = tuple(kind for kind, (status, _) in self._transitions.items() if status == "True")
        self._handle(NodePressureChanged(conditions=pressed, cause="the node was read"))
        self._conditions.put("node", node_pressure(self._transitions), "the node was read")
        self._conditions.mark_complete()

    async def _act(self, first: Threshold) -> bool:
        """Relieve the node of this threshold. Return whether a pod was evicted."""
        log.warning("the node is low on %s: %s", first.signal, node_event(first))
        self._warn("EvictionThresholdMet", node_event(first), kind="Node", name=self._node_name)
        files = cycle.is_of_filesystem(first)
        layout = self._layout or Layout.SINGLE
        if files and may_reclaim_containers(first, layout):
            await self.dead_containers.remove_all()
        if files and may_reclaim_images(first, layout):
            await self._remove_images()
        max_age = 0.0 if files else MAX_READING_AGE_SECONDS
        usage = await self._ask(GetUsage(max_age_seconds=max_age, max_age_files_seconds=0.0 if files else None))
        if usage is None or not usage.complete:
            return False
        self._evaluate(usage.node)
        act_on, self._act_on = self._act_on, ()
        if first not in self._memory.acted_on:
            return False
        usages = {pod.uid: pod for pod in usage.pods}
        by_uid = {tracked.uid: tracked for tracked in self._running()}
        candidates = [Candidate(uid=uid, pod=r.saved.pod, usage=usages.get(uid)) for uid, r in by_uid.items()]
        for candidate in rank(first.signal, candidates, layout):
            tracked = by_uid[candidate.uid]
            if candidate.critical:
                log.error("cannot evict the critical pod %s", tracked.description)
                continue
            message, annotations = eviction_text(candidate, first, (first, *act_on), self._readings)
            self._evict(tracked, message, first.signal, self._grace(first, tracked), annotations, message)
            return True
        log.error("no pod can be evicted to relieve %s", first.signal)
        return False

    def _evict(
        self,
        tracked: TrackedPod,
        message: str,
        signal: str,
        grace_seconds: int,
        annotations: dict[str, str] | None = None,
        disruption: str = "",
    ) -> None:
        log.warning("evicting %s for %s: %s", tracked.description, signal, message)
        self._evictions.inc(signal)
        cause = f"evicted for {signal}"
        self._handle(
            PodEvicted(
                uid=tracked.uid, message=message, disruption=disruption, grace_seconds=grace_seconds, cause=cause
            )
        )
        self._warn(
            EVICTED,
            message,
            namespace=tracked.namespace,
            name=tracked.name,
            uid=tracked.uid,
            resource_version=tracked.resource_version,
            annotations=tuple((annotations or {}).items()),
        )

    def _warn(self, reason: str, message: str, **about: Any) -> None:
        self._events.record(KubeEvent(type="Warning", reason=reason, message=message, **about))

    def _grace(self, threshold: Threshold, tracked: TrackedPod) -> int:
        """Return the most seconds that the pod gets; a shorter grace period of an end already begun stays."""
        if threshold.hard:
            return HARD_GRACE_SECONDS
        own = tracked.spec.get("terminationGracePeriodSeconds")
        return min(self._max_grace, own) if isinstance(own, int) else self._max_grace

    async def _usages(self, request: GetUsage) -> Mapping[str, PodUsage] | None:
        """Return the usage of pods by UID; None = not known: then no pod is evicted."""
        answer = await self._ask(request)
        return {usage.uid: usage for usage in answer.pods} if answer is not None and answer.complete else None

    async def _read_again(self) -> bool:
        """Request a new reading and evaluate it. Return whether there was one."""
        answer = await self._ask(GetUsage(max_age_seconds=0.0, pods=False))
        if answer is not None:
            self._evaluate(answer.node)
        return answer is not None

    async def _ask(self, request: GetUsage) -> FoundUsage | None:
        try:
            return await self._bus.ask("pleg", request, FoundUsage, timeout=10.0)
        except (NoAnswerError, RequestRefusedError) as error:
            log.warning("no fresh reading of the node: %s", error)
            return None

    async def _wait_for_evicted(self) -> bool:
        """Wait until every evicted pod freed what it held, at most 30 s after its end began. Return whether one had not
        when this began."""
        waited = False
        while (left := self._longest_wait()) > 0:
            waited = True
            self._pod_changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._pod_changed.wait()
        return waited

    def _longest_wait(self) -> float:
        now = self._now()
        begun = [tracked.saved.terminating_since for tracked in self._core.tracked.values() if _is_ending(tracked)]
        return max((since + MAX_WAIT_SECONDS - now for since in begun), default=0.0)


def _is_ending(tracked: TrackedPod) -> bool:
    """Return whether the pod was evicted and still has volumes or dead containers, whose space is to be freed."""
    if not tracked.evicted or tracked.saved.state is PodState.SYNC:
        return False
    return tracked.saved.state is not PodState.FINISHED or bool(tracked.instances)
