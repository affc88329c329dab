"""What podsync knows: every pod's record, what the sources want, what was seen of the runtime and of volumes.

Takes events in and says which pods they touch. Decides who ends or is an orphan; who is admitted is decided by
`admitting`, what a pod needs next by `steps`, called by `machine`.
"""

from dataclasses import replace
from typing import Any

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolumes
from services.podsync.core import outcomes
from services.podsync.core.admission.admitting import Admissions
from services.podsync.core.admission.node_view import MachineFacts, node_addresses
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.events import (
    CallDone,
    CallFailed,
    Event,
    NodeChanged,
    PodDesired,
    PodObserved,
    PodUndesired,
    PodVanished,
    ProbesChanged,
    RuntimeChanged,
    RuntimeListed,
    SourcesHeard,
    TimePassed,
    VolumesChanged,
    VolumesHeard,
)
from services.podsync.core.pod.instructions import FetchNode
from services.podsync.core.pod.observed import outdated
from services.podsync.core.pod.record import PodRecord, from_desired, from_runtime
from services.podsync.core.pod.records import Records
from services.podsync.core.pod.saved_record import restore
from shared.model.objects import Object
from shared.model.runtime import RuntimePod
from shared.timestamps import rfc3339

FORGOTTEN_KEPT = 500  # pods; an observation of one that went before is long past


class NodeState:
    """`started_at`: CLOCK_MONOTONIC seconds; observations from before are another life's. `checkpoint`: uid -> record
    as `saved_record.persisted` wrote it, by this or another version. `agent_start`: identity of the start of the agent
    that this process belongs to, "" = not known."""

    def __init__(
        self, started_at: float, facts: MachineFacts, checkpoint: dict[str, dict[str, Any]], agent_start: str = ""
    ) -> None:
        self._started_at = started_at
        self.pods = Records()
        self.records = self.pods.by_uid
        self.unreadable: dict[str, str] = {}  # records of no use: those pods are adopted from the runtime
        for uid, data in checkpoint.items():
            try:
                self.pods.add(restore(data))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self.unreadable[uid] = f"{type(error).__name__}: {error}"
        self.volumes: dict[str, MountedVolumes] = {}
        self.forgotten: dict[str, float] = {}  # uid -> monotonic time of the last look at a pod that is gone
        self.desired: dict[str, PodDesired] = {}
        self.unclaimed: dict[str, RuntimePod] = {}  # seen in the runtime, no record, nobody wants them (yet)
        self.admissions = Admissions(self.pods, self.desired, facts, agent_start)
        self._runtime: RuntimeChanged | None = None  # as heard last
        self.skew = 0.0  # seconds by which the wall clock has been set away from the steady one
        self.runtime_listed = False
        self.volumes_known = False
        self.network_ready = True
        self.network_message = ""
        self.runtime_reachable = True
        self.runtime_name = "containerd"

    def take_in(self, event: Event, now: float) -> list[PodRecord]:
        """Change what is known; return the records to look at again."""
        match event:
            case PodDesired():
                return self._on_desired(event, now)
            case PodUndesired(uid=uid):
                self.desired.pop(uid, None)
                return self._on_unwanted(uid, now)
            case SourcesHeard():
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
                    record.observed = outdated(record.observed)
                return [record]
            case NodeChanged(node=node):
                before = node_addresses(self.admissions.node)
                self.admissions.node, self.admissions.node_known = node, True
                judged = self.admissions.judge_waiting(now)
                return self.pods.at_work() if node_addresses(node) != before else judged
            case ProbesChanged():
                return self._on_probes(event)
            case VolumesChanged(uid=uid, volumes=volumes):
                if volumes is None:
                    self.volumes.pop(uid, None)
                else:
                    self.volumes[uid] = volumes
                record = self.records.get(uid)
                return [] if record is None else [record]
            case RuntimeListed():
                self.runtime_listed = event.complete and not event.stale
                return []
            case VolumesHeard():
                self.volumes_known = event.complete and not event.stale
                return self.pods.at_work()
            case RuntimeChanged():
                return self._on_runtime(event, now)
            case CallDone(uid=uid) | CallFailed(uid=uid):
                return self._on_outcome(event, now)
            case TimePassed():
                return [r for r in self.pods.at_work() if r.call is None and r.wake_at <= now]
            case _:
                return []

    def _on_desired(self, event: PodDesired, now: float) -> list[PodRecord]:
        first = event.uid not in self.desired
        self.desired[event.uid] = event
        record = self.records.get(event.uid)
        touched: list[PodRecord] = []
        news = True
        if record is None:
            record = self._take_on(event, now)
            if (
                record.saved.state is PodState.SYNC
                and not record.deletion_requested
                and not lifecycle.has_ended(record)
            ):
                record.saved = replace(record.saved, admission_decided=False)
        elif record.saved.deleted and not _deletion_requested(event.pod):
            record.saved = replace(record.saved, restart_requested=True)
        else:
            news = record.wanted_as(event.source, event.pod)
            if news and record.saved.state is PodState.TERMINATING:
                record.saved = replace(record.saved, grace_seconds=lifecycle.effective_grace(record))
        if record.deletion_requested and record.saved.state is PodState.SYNC:
            record.saved = replace(record.saved, deleted=True, admission_decided=True)
            lifecycle.begin_termination(record, reason=event.cause or "deleted", now=now)
        elif record.deletion_requested:
            record.saved = replace(record.saved, deleted=True)
        if first:
            touched += self._end_replaced(record, now)
        touched += self.admissions.on_listed(record, now, first=first)
        return [*touched, record] if news else touched  # not what we wrote and comes back

    def _take_on(self, event: PodDesired, now: float) -> PodRecord:
        record = from_desired(event.uid, event.source, event.pod)
        if not record.saved.start_time:
            record.saved = replace(record.saved, start_time=rfc3339(now + self.skew), active_since=now)
        self.pods.add(record)
        seen = self.unclaimed.pop(event.uid, None)
        record.unheard_of = seen is None and self.runtime_listed and event.uid not in self.forgotten
        if seen is not None and seen.observed_at > self._started_at:
            record.observe(seen, seen.observed_at)
        return record

    def _end_replaced(self, record: PodRecord, now: float) -> list[PodRecord]:
        """A source lists one pod of a name at a time: a new one ends those of other UIDs, also before the source is
        complete, so that an edit made while the API server is away takes effect. Returns what it changed."""
        touched: list[PodRecord] = []
        for other in self.pods.namesakes(record):
            if other.saved.source == record.saved.source:
                self.desired.pop(other.uid, None)
                touched += [] if other.saved.deleted else self._on_unwanted(other.uid, now)
        return touched

    def _on_probes(self, event: ProbesChanged) -> list[PodRecord]:
        record = self.records.get(event.pod_uid)
        if record is None:
            return []
        if event.results is None:
            record.probes.pop(event.container_id, None)
        else:
            record.probes[event.container_id] = event.results
        return [record]

    def _on_unwanted(self, uid: str, now: float) -> list[PodRecord]:
        record = self.records.get(uid)
        if record is None:
            return []
        # A pod that waits for its verdict needs none any more.
        record.saved = replace(record.saved, restart_requested=False, deleted=True, admission_decided=True)
        if record.saved.state is PodState.SYNC:
            lifecycle.begin_termination(record, reason="no source wants the pod", now=now)
        return [record]

    def _on_sources(self, event: SourcesHeard, now: float) -> list[PodRecord]:
        self.admissions.sources_complete = event.complete and not event.stale
        touched: list[PodRecord] = []
        if self.admissions.sources_complete:
            for uid in [u for u in self.records if u not in event.listed]:
                if not self.records[uid].saved.deleted:
                    touched += self._on_unwanted(uid, now)
            touched += [*self._claim_orphans(now), *self.admissions.judge_waiting(now)]
        return touched

    def _claim_orphans(self, now: float) -> list[PodRecord]:
        """Pods the runtime has and nobody wants, known only once every source has spoken: they are killed."""
        claimed = []
        for uid, observation in list(self.unclaimed.items()):
            del self.unclaimed[uid]
            record = from_runtime(observation)
            record.saved = replace(record.saved, deleted=True)
            self.pods.add(record)
            lifecycle.begin_termination(record, reason="in the runtime and wanted by no source", now=now)
            claimed.append(record)
        return claimed

    def _on_observed(self, observation: RuntimePod, now: float) -> list[PodRecord]:
        record = self.records.get(observation.uid)
        if record is None:
            if observation.observed_at <= self.forgotten.get(observation.uid, float("-inf")):
                return []  # begun before everything of the pod was removed
            self.unclaimed[observation.uid] = observation
            return self._claim_orphans(now) if self.admissions.sources_complete else []
        fresh = observation.observed_at > max(record.observed.at, self._started_at)
        if not fresh:
            return []  # begun before our last call ended: it says nothing about that call
        record.observe(observation, observation.observed_at)
        return [record]

    def _on_runtime(self, event: RuntimeChanged, now: float) -> list[PodRecord]:
        heard = replace(event, cause="")
        if heard == self._runtime:
            return []
        self._runtime = heard
        back = event.reachable and not self.runtime_reachable
        self.runtime_reachable = event.reachable
        self.runtime_name = event.runtime_name or self.runtime_name
        self.network_ready, self.network_message = event.network_ready, event.network_message
        self.admissions.pressures = event.pressures
        self.admissions.supplemental_groups_policy = event.supplemental_groups_policy
        self.admissions.runtime_known = self.admissions.runtime_known or event.reachable
        self.admissions.judge_waiting(now)
        at_work = self.pods.at_work()
        if back:
            for record in at_work:
                record.retry = replace(record.retry, at=0.0, containers={})
        return at_work

    def _on_outcome(self, event: CallDone | CallFailed, now: float) -> list[PodRecord]:
        record = self.records.get(event.uid)
        if record is None or record.call != event.call:
            return []
        record.call = None
        if isinstance(event, CallDone) and isinstance(event.call, FetchNode):
            if record.saved.admission_decided:  # it was dropped meanwhile
                return [record]
            node = event.node or self.admissions.node
            return [*self.admissions.judge(record, now, node=node, last_word=True), record]
        if isinstance(event, CallDone):
            outcomes.take_in_success(record, event, now)
        else:
            outcomes.take_in_failure(record, event, now)
        return [record]

    def forget(self, record: PodRecord) -> None:
        """Nothing of the pod is left."""
        self.pods.remove(record)
        self.forgotten[record.uid] = record.observed.at
        for oldest in list(self.forgotten)[:-FORGOTTEN_KEPT]:
            del self.forgotten[oldest]


def _deletion_requested(pod: Object) -> bool:
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))
