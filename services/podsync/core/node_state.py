"""Has the state of the node: every pod's record, the pods that sources list, what was observed of runtime and volumes.
Takes events in and returns which pods they touch. Decides which pods end or are orphans; `admitting` decides which are
admitted, and `steps` what a pod needs next.
"""

from typing import Any

from bus.messages.pleg import RuntimeHandler
from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolumes
from services.podsync.core import outcomes
from services.podsync.core.admission.admitting import Admissions
from services.podsync.core.admission.node_view import MachineFacts, node_addresses
from services.podsync.core.admission.resizes import Resizes
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.events import (
    CallDone,
    CallFailed,
    Event,
    GarbageFound,
    NodeChanged,
    NodePressureChanged,
    PodDesired,
    PodEvicted,
    PodObserved,
    PodUndesired,
    PodVanished,
    ProbesChanged,
    RuntimeChanged,
    RuntimeListed,
    SourcesFreshness,
    TimePassed,
    VolumesChanged,
    VolumesFreshness,
)
from services.podsync.core.pod.gated_fields import without_gated_fields
from services.podsync.core.pod.instructions import FetchNode
from services.podsync.core.pod.listed import as_listed, from_desired, from_runtime, is_listed_otherwise
from services.podsync.core.pod.observed import outdated
from services.podsync.core.pod.progress import InstanceFacts, without_retry_delay
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.records import Records
from services.podsync.core.pod.results import NodeRead, PodListed
from services.podsync.core.pod.saved import without
from services.podsync.core.pod.saved_record import restore
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.runtime import RuntimePod

MAX_FORGOTTEN = 500  # pods; late observations of pods that were forgotten earlier do not occur


class NodeState:
    """Has the pods of the node: what the sources list, what the runtime shows, and what is saved of each.

    `started_at`: CLOCK_MONOTONIC seconds; older observations are of another process. `checkpoint`: uid -> record as
    `saved_record.persisted` wrote it. `agent_start`: identity of the start of the agent that this process belongs to,
    "" = not known.
    """

    def __init__(
        self, started_at: float, facts: MachineFacts, checkpoint: dict[str, dict[str, Any]], agent_start: str = ""
    ) -> None:
        self._started_at = started_at
        self.pods = Records()
        self.records = self.pods.by_uid
        self.unreadable: dict[str, str] = {}  # UID -> error of a record that cannot be used; the pod is admitted again
        for uid, data in checkpoint.items():
            try:
                self.pods.add(_without_gated_fields(restore(data), facts.gates_off))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self.unreadable[uid] = f"{type(error).__name__}: {error}"
        self.volumes: dict[str, MountedVolumes] = {}
        self.forgotten: dict[str, float] = {}  # uid -> monotonic time of the last list of a pod that is gone
        self.desired: dict[str, PodDesired] = {}
        self.unclaimed: dict[str, RuntimePod] = {}  # in the runtime, without a record, listed by no source (yet)
        self.admissions = Admissions(self.pods, self.desired, facts, agent_start)
        self.resizes = Resizes(self.pods, self.admissions)
        self._runtime: RuntimeChanged | None = None  # the last one received
        self.skew = 0.0  # seconds of the wall clock ahead of the steady one
        self.runtime_listed = False
        self.volumes_known = False
        self.network_ready = True
        self.network_message = ""
        self.runtime_reachable = True
        self.runtime_name = "containerd"
        self.runtime_handlers: tuple[RuntimeHandler, ...] | None = None  # None = not reported

    def take_in(self, event: Event, now: float) -> list[str]:
        """Take an event into the state; return the UIDs of the pods to advance, in this order."""
        touched = [(uid, *self._resume_or_end(uid, now)) for uid in self._apply(event, now)]
        return list(dict.fromkeys(uid for uids in touched for uid in uids))

    def _apply(self, event: Event, now: float) -> list[str]:
        match event:
            case PodDesired():
                return self._on_desired(event, now)
            case PodUndesired(uid=uid):
                self.desired.pop(uid, None)
                return [*self._on_unwanted(uid, now), *self.resizes.decide(now)]
            case SourcesFreshness():
                return self._on_sources(event, now)
            case PodObserved(observation=observation):
                return self._on_observed(observation, now)
            case PodVanished(uid=uid):
                self.unclaimed.pop(uid, None)
                self.forgotten.pop(uid, None)
                record = self.records.get(uid)
                if record is None:
                    return []
                if record.instances or record.sandboxes:
                    # The event has no time of its own.
                    self.pods.put(replace(record, observed=outdated(record.observed)))
                return [uid]
            case NodeChanged(node=node):
                before = node_addresses(self.admissions.node)
                self.admissions.node, self.admissions.node_known = node, True
                decided = [*self.admissions.decide_waiting(now), *self.resizes.decide(now)]
                return self._at_work() if node_addresses(node) != before else decided
            case NodePressureChanged(conditions=conditions):
                if conditions == self.admissions.pressures:
                    return []
                self.admissions.pressures = conditions
                return self.resizes.decide(now)
            case PodEvicted():
                return self._on_evicted(event, now)
            case GarbageFound():
                return self._on_garbage(event)
            case ProbesChanged():
                return self._on_probes(event)
            case VolumesChanged(uid=uid, volumes=volumes):
                if volumes is None:
                    self.volumes.pop(uid, None)
                else:
                    self.volumes[uid] = volumes
                return [uid] if uid in self.records else []
            case RuntimeListed():
                self.runtime_listed = event.complete and not event.stale
                return []
            case VolumesFreshness():
                self.volumes_known = event.complete and not event.stale
                return self._at_work()
            case RuntimeChanged():
                return self._on_runtime(event, now)
            case CallDone(uid=uid) | CallFailed(uid=uid):
                return self._on_outcome(event, now)
            case TimePassed():
                # Of a pod with a call, the moment is its deadline.
                due = [r.uid for r in self.pods.at_work() if r.wake_at <= now]
                return [*due, *(self.resizes.decide(now) if 0 < self.resizes.retry_at <= now else [])]
            case _:
                return []

    def _at_work(self) -> list[str]:
        return [record.uid for record in self.pods.at_work()]

    def _on_desired(self, event: PodDesired, now: float) -> list[str]:
        uid = event.uid
        event = replace(event, pod=without_gated_fields(event.pod, self.admissions.facts.gates_off))
        first = uid not in self.desired
        self.desired[uid] = event
        before = self.records.get(uid)
        is_changed = True
        if before is None:
            record = self._new_record(event, now)
            self.pods.add(record)
        elif before.saved.deleted and not _deletion_requested(event.pod):
            record = replace(before, saved=replace(before.saved, restart_requested=True))
        else:
            record = as_listed(before, event.source, event.pod)
            is_changed = is_listed_otherwise(before, record)  # our own status, which comes back, is no change
            if is_changed and record.saved.state is PodState.TERMINATING:
                grace_seconds = lifecycle.effective_grace(record)
                record = replace(record, saved=replace(record.saved, grace_seconds=grace_seconds))
        if record.deletion_requested and record.saved.state is PodState.SYNC:
            record = replace(record, saved=replace(record.saved, deleted=True))
            record = lifecycle.with_termination(record, reason=event.cause or "deleted", now=now)
        elif record.deletion_requested and not record.saved.deleted:
            record = replace(record, saved=replace(record.saved, deleted=True))
        self.pods.put(record)
        touched = self._end_replaced(record, now) if first else []
        touched += self.admissions.on_listed(uid, now, first=first)
        self.resizes.on_listed(self.records[uid])
        if is_changed or record.runs_after_end:
            touched += [*self.resizes.decide(now), uid]
        return list(dict.fromkeys(touched))

    def _new_record(self, event: PodDesired, now: float) -> PodRecord:
        record = from_desired(event.uid, event.source, event.pod)
        saved = lifecycle.with_start(record.saved, now, self.skew)
        if saved.state is PodState.SYNC and not record.deletion_requested and not lifecycle.has_ended(record):
            saved = replace(saved, admission_decided=False)
        seen = self.unclaimed.pop(event.uid, None)
        new_to_node = seen is None and self.runtime_listed and event.uid not in self.forgotten
        record = replace(record, saved=saved, new_to_node=new_to_node)
        if seen is not None and seen.observed_at > self._started_at:
            record = record.with_observation(seen, seen.observed_at)
        return record

    def _end_replaced(self, record: PodRecord, now: float) -> list[str]:
        """End the pods of the same name and source with other UIDs, and return their UIDs: a source lists one pod of a
        name at a time. This does not wait until the source is complete, so that an edit made while the API server is
        away takes effect."""
        touched: list[str] = []
        for other in self.pods.namesakes(record):
            if other.saved.source == record.saved.source:
                self.desired.pop(other.uid, None)
                touched += [] if other.saved.deleted else self._on_unwanted(other.uid, now)
            touched += [other.uid] if other.runs_after_end else []
        for seen in [
            pod for pod in self.unclaimed.values() if (pod.name, pod.namespace) == (record.name, record.namespace)
        ]:
            touched += self._claim_replaced(seen, now)
        return touched

    def _resume_or_end(self, uid: str, now: float) -> list[str]:
        """Take a finished pod that runs, because another agent of the node started it, as a new pod with its containers
        if a source lists it again (pods.md 4.7); end it again if none does. Return the UIDs of other pods that this
        touches."""
        record, desired = self.records.get(uid), self.desired.get(uid)
        if record is None or not record.runs_after_end or not record.observed.is_current or record.call is not None:
            return []
        listed_again = record.saved.restart_requested or (record.is_static and not record.saved.deleted)
        if desired is not None and listed_again and not record.saved.rejected:
            resumed = replace(
                self._new_record(desired, now),
                attempts=record.attempts,
                observed=record.observed,
                last_written=record.last_written,
                instance_facts=record.instance_facts,
                new_to_node=False,
            )
            self.pods.add(resumed)
            return self.admissions.on_listed(uid, now, first=True)
        if self._is_unwanted(record):
            self.pods.put(lifecycle.with_second_termination(record, now))
        return []

    def _is_unwanted(self, record: PodRecord) -> bool:
        """Return whether no source can list this pod any more, or only as one that does not run: a finished pod of the
        API server never runs again, a rejected one does not run, and a source lists one pod of a name at a time."""
        if record.saved.rejected or record.saved.source == "api" or self.admissions.sources_complete:
            return True
        sources = {other.saved.source for other in self.pods.namesakes(record) if other.uid in self.desired}
        return bool(sources - {"api"}) if not record.saved.source else record.saved.source in sources

    def _on_evicted(self, event: PodEvicted, now: float) -> list[str]:
        record = self.records.get(event.uid)
        if record is None or record.saved.state is not PodState.SYNC or not record.saved.admission_decided:
            return []
        ending = {"reason": "Evicted", "message": event.message, "disruption": event.disruption}
        record = replace(record, saved=replace(record.saved, ending=ending))
        self.pods.put(lifecycle.with_termination(record, reason=event.cause, now=now, override=event.grace_seconds))
        return [record.uid]

    def _on_garbage(self, event: GarbageFound) -> list[str]:
        records = [self.records[uid] for uid in event.containers if uid in self.records]
        for record in records:
            retry = replace(record.retry, removal_at=0.0)
            self.pods.put(replace(record, garbage=event.containers[record.uid], retry=retry))
        return [record.uid for record in records]

    def _on_probes(self, event: ProbesChanged) -> list[str]:
        record = self.records.get(event.pod_uid)
        if record is None:
            return []
        facts = replace(record.instance_facts.get(event.container_id, InstanceFacts()), probes=event.results)
        others = without(record.instance_facts, event.container_id)
        if facts != InstanceFacts():
            others = {**others, event.container_id: facts}
        self.pods.put(replace(record, instance_facts=others))
        return [record.uid]

    def _on_unwanted(self, uid: str, now: float) -> list[str]:
        record = self.records.get(uid)
        if record is None:
            return []
        record = replace(record, saved=replace(record.saved, restart_requested=False, deleted=True))
        if record.saved.state is PodState.SYNC:
            record = lifecycle.with_termination(record, reason="no source lists the pod", now=now)
        self.pods.put(record)
        return [uid]

    def _on_sources(self, event: SourcesFreshness, now: float) -> list[str]:
        self.admissions.sources_complete = event.complete and not event.stale
        touched: list[str] = []
        if self.admissions.sources_complete:
            for uid in [u for u in self.records if u not in event.listed]:
                if not self.records[uid].saved.deleted:
                    touched += self._on_unwanted(uid, now)
                elif self.records[uid].runs_after_end:
                    touched.append(uid)
            touched += [*self._claim_orphans(now), *self.admissions.decide_waiting(now), *self.resizes.decide(now)]
        return touched

    def _claim_orphans(self, now: float) -> list[str]:
        """End the pods that the runtime has and no source lists; called only once every source is complete."""
        reason = "in the runtime and listed by no source"
        return [self._claim(observation, reason, now) for observation in list(self.unclaimed.values())]

    def _claim_replaced(self, observation: RuntimePod, now: float) -> list[str]:
        """End a static pod that another agent started, where its source lists one of that name with another UID. This
        does not wait for the other sources, so that both never run beside each other (pods.md 4.5)."""
        sources = {sandbox.static_source for sandbox in observation.sandboxes} - {""}
        others = self.pods.namesakes(from_runtime(observation))
        if not any(other.uid in self.desired and other.saved.source in sources for other in others):
            return []
        return [self._claim(observation, "its source lists another pod of this name", now)]

    def _claim(self, observation: RuntimePod, reason: str, now: float) -> str:
        del self.unclaimed[observation.uid]
        record = from_runtime(observation)
        record = replace(record, saved=replace(record.saved, deleted=True))
        self.pods.add(lifecycle.with_termination(record, reason=reason, now=now))
        return record.uid

    def _on_observed(self, observation: RuntimePod, now: float) -> list[str]:
        record = self.records.get(observation.uid)
        if record is None:
            if observation.observed_at <= self.forgotten.get(observation.uid, float("-inf")):
                return []  # the observation was begun before everything of the pod was removed
            self.unclaimed[observation.uid] = observation
            if self.admissions.sources_complete:
                return self._claim_orphans(now)
            return self._claim_replaced(observation, now)
        fresh = observation.observed_at > max(record.observed.at, self._started_at)
        if not fresh:
            return []  # it was begun before our last call ended, and does not show the effect of that call
        self.pods.put(record.with_observation(observation, observation.observed_at))
        return [record.uid]

    def _on_runtime(self, event: RuntimeChanged, now: float) -> list[str]:
        runtime = replace(event, cause="")
        if runtime == self._runtime:
            return []
        self._runtime = runtime
        back = event.reachable and not self.runtime_reachable
        self.runtime_reachable = event.reachable
        self.runtime_name = event.runtime_name or self.runtime_name
        self.runtime_handlers = event.handlers
        self.network_ready, self.network_message = event.network_ready, event.network_message
        self.admissions.supplemental_groups_policy = event.supplemental_groups_policy
        self.admissions.runtime_known = self.admissions.runtime_known or event.reachable
        self.admissions.decide_waiting(now)
        self.resizes.decide(now)
        if back:
            for record in self.pods.at_work():
                starts, volume_images = without_retry_delay(record.starts), without_retry_delay(record.volume_images)
                retry = replace(record.retry, at=0.0)
                self.pods.put(replace(record, retry=retry, starts=starts, volume_images=volume_images))
        return self._at_work()

    def _on_outcome(self, event: CallDone | CallFailed, now: float) -> list[str]:
        record, uid = self.records.get(event.uid), event.uid
        if record is None or record.call != event.call:
            return []
        if isinstance(event, CallFailed):
            record = outcomes.failed(record, event, now)
        elif isinstance(event.call, FetchNode):
            record = replace(record, call=None)
        else:
            record = outcomes.succeeded(record, event, now)
        self.pods.put(record)
        if isinstance(event, CallDone) and isinstance(event.result, PodListed) and event.result.namesakes:
            touched = [other for pod in event.result.namesakes for other in self._on_observed(pod, now)]
            return [*touched, uid]
        if isinstance(event, CallDone) and isinstance(event.call, FetchNode) and not record.saved.admission_decided:
            read = event.result.node if isinstance(event.result, NodeRead) else None
            node = read or self.admissions.node
            decided = self.admissions.decide(uid, now, node=node, is_final=True)
            return list(dict.fromkeys((*decided, *self.resizes.decide(now), uid)))
        return [*self.resizes.decide(now), uid] if self.resizes.waits_for(event.call) else [uid]

    def forget(self, record: PodRecord) -> None:
        """Forget a pod of which nothing is left."""
        self.pods.remove(record.uid)
        self.forgotten[record.uid] = record.observed.at
        for oldest in list(self.forgotten)[:-MAX_FORGOTTEN]:
            del self.forgotten[oldest]


def _deletion_requested(pod: Object) -> bool:
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def _without_gated_fields(record: PodRecord, off: frozenset[str]) -> PodRecord:
    """Return a record of an earlier process without the fields whose gates are off now."""
    pod = without_gated_fields(record.saved.pod, off)
    return record if pod is record.saved.pod else replace(record, saved=replace(record.saved, pod=pod))
