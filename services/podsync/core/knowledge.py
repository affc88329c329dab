"""What podsync knows: every pod's record, what the sources want, what was seen of the runtime and of volumes.

Takes events in and says which pods they touch. Decides who is admitted, ends or is an orphan; what a pod needs next is
decided by `steps`, called by `machine`.
"""

from dataclasses import replace
from typing import Any

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolumes
from services.podsync.core import lifecycle, outcomes
from services.podsync.core.admission import Verdict, admit
from services.podsync.core.events import (
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
from services.podsync.core.instructions import FetchNode
from services.podsync.core.node_view import MachineFacts, NodeView, node_addresses, node_view
from services.podsync.core.record import PodRecord, from_desired, from_runtime
from services.podsync.core.records import Records
from services.podsync.core.saved_record import restore
from shared.model.objects import Object
from shared.model.runtime import RuntimePod
from shared.timestamps import rfc3339

FORGOTTEN_KEPT = 500  # pods; an observation of one that went before is long past


class Knowledge:
    """`started_at`: CLOCK_MONOTONIC seconds; observations from before are another life's. `checkpoint`: uid -> record
    as `saved_record.persisted` wrote it, by this or another version. `agent_start`: identity of the start of the agent
    that this process belongs to, "" = not known."""

    def __init__(
        self, started_at: float, facts: MachineFacts, checkpoint: dict[str, dict[str, Any]], agent_start: str = ""
    ) -> None:
        self._started_at, self._facts, self._agent_start = started_at, facts, agent_start
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
        self.node: Object | None = None  # as the API server has it
        self.pressures: tuple[str, ...] = ()
        self.supplemental_groups_policy = False
        self.node_heard = False  # the API server's Node, or that there is none, or that nobody can know
        self.runtime_heard = False
        self._runtime: RuntimeChanged | None = None  # as heard last
        self.skew = 0.0  # seconds by which the wall clock has been set away from the steady one
        self.sources_ready = False
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
                    record.looked = False  # no moment comes with it: look for ourselves
                return [record]
            case NodeChanged(node=node):
                before, self.node, self.node_heard = node_addresses(self.node), node, True
                judged = self._judge_waiting(now)
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
            if record.state is PodState.SYNC and not record.deletion_requested and not lifecycle.has_ended(record):
                record.judged = False
        elif record.deleted and not _deletion_requested(event.pod):
            record.restart_requested = True
        else:
            news = record.wanted_as(event.source, event.pod)
            if news and record.state is PodState.TERMINATING:
                record.grace_seconds = lifecycle.effective_grace(record)
        if record.deletion_requested and record.state is PodState.SYNC:
            record.deleted, record.judged = True, True
            lifecycle.begin_termination(record, reason=event.cause or "deleted", now=now)
        elif record.deletion_requested:
            record.deleted = True
        if first:
            touched += self._end_replaced(record, now)
        if first or not record.judged:
            touched += self._judge_waiting(now)
        return [*touched, record] if news else touched  # not what we wrote and comes back

    def _take_on(self, event: PodDesired, now: float) -> PodRecord:
        record = from_desired(event.uid, event.source, event.pod)
        if not record.start_time:
            record.start_time, record.active_since = rfc3339(now + self.skew), now
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
            if other.source == record.source:
                self.desired.pop(other.uid, None)
                touched += [] if other.deleted else self._on_unwanted(other.uid, now)
        return touched

    def _may_judge(self, record: PodRecord) -> bool:
        """A source lists the pod, the runtime's features are known, and so is the Node. A static pod does not wait for
        the Node, for it may be the API server (F29)."""
        return record.uid in self.desired and self.runtime_heard and (record.is_static or self.node_heard)

    def _judge_waiting(self, now: float) -> list[PodRecord]:
        """Judge the pods that waited for a fact, the oldest first."""
        waiting = [
            record
            for record in self.pods.at_work()
            if not record.judged and not record.asks_for_node and record.pod and self._may_judge(record)
        ]
        touched: list[PodRecord] = []
        for record in sorted(waiting, key=lambda r: str((r.pod.get("metadata") or {}).get("creationTimestamp") or "")):
            touched += [*self._judge(record, now, node=self.node, last_word=False), record]
        return touched

    def _judge(self, record: PodRecord, now: float, *, node: Object | None, last_word: bool) -> list[PodRecord]:
        """Admission's verdict, given once and saved with the record; returns the pods preempted for this one. Leaves
        the pod as it is, to be judged again later, while the verdict may change with facts yet to come."""
        view = node_view(
            node,
            self._facts,
            pressures=self.pressures,
            supplemental_groups_policy=self.supplemental_groups_policy,
        )
        others = [other for other in self.active() if other.uid != record.uid]
        if record.is_static:  # it does not wait for the API server to confirm its pods
            others = [other for other in others if other.uid in self.desired or other.is_static]
        listed = [other for other in others if other.uid in self.desired]
        verdict = self._verdict(record, view, others)
        hindered = (verdict.reason or verdict.victims) and len(listed) < len(others)
        if hindered and verdict != self._verdict(record, view, listed):
            return []  # it depends on pods of the checkpoint that the sources may not list any more
        if verdict.reason and not self.node_heard:
            return []
        record.asks_for_node = verdict.ask_for_node and not last_word
        if record.asks_for_node:
            return []  # its labels may have changed meanwhile: the Node is read before the pod is refused
        record.judged, record.judged_in = True, self._agent_start
        record.rejected, record.rejected_message = verdict.reason, verdict.message
        if verdict.reason:
            lifecycle.move(record, PodState.FINISHED)
        return self._preempt(record, verdict, now)

    def _verdict(self, record: PodRecord, view: NodeView, others: list[PodRecord]) -> Verdict:
        phase = str(record.api_status.get("phase") or "")
        return admit(record.pod, phase, view, [other.pod for other in others])

    def active(self) -> list[PodRecord]:
        """The pods that count for admission, preemption and QoS cgroups (reference pods.md 3.1): admitted, not known to
        have ended, and listed by a source. Until the sources are complete the checkpoint's pods count as listed."""
        return [record for record in self.pods.at_work() if _is_active(record) and self._may_be_listed(record)]

    def _may_be_listed(self, record: PodRecord) -> bool:
        if record.uid in self.desired:
            return True
        return not self.sources_ready and (not record.deleted or record.deletion_requested)

    def reopen_rejected(self, now: float) -> None:
        """At a new start of the agent the static pods it rejected are to be judged again; the verdict on a pod of the
        API server is final, for its status there is."""
        for record in list(self.records.values()):
            if record.rejected and record.is_static and not record.deleted and record.judged_in != self._agent_start:
                again = from_desired(record.uid, record.source, record.pod)
                again.start_time, again.active_since, again.judged = rfc3339(now + self.skew), now, False
                self.pods.add(again)

    def _preempt(self, record: PodRecord, verdict: Verdict, now: float) -> list[PodRecord]:
        record.victims = list(verdict.victims)
        victims = [self.records[uid] for uid in verdict.victims]
        for victim in victims:
            text = "Preempted in order to admit critical pod"
            victim.note("Warning", "Preempting", text, "")
            disruption = "Pod was preempted by Kubelet to accommodate a critical pod."
            victim.ending = {"reason": "Preempting", "message": text, "disruption": disruption}
            if victim.state is PodState.SYNC:
                lifecycle.begin_termination(victim, reason=f"preempted for {record.description}", now=now)
        return victims

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
        record.restart_requested = False
        record.deleted = record.judged = True  # one that waits for its verdict needs none any more
        if record.state is PodState.SYNC:
            lifecycle.begin_termination(record, reason="no source wants the pod", now=now)
        return [record]

    def _on_sources(self, event: SourcesHeard, now: float) -> list[PodRecord]:
        self.sources_ready = event.complete and not event.stale
        touched: list[PodRecord] = []
        if self.sources_ready:
            for uid in [u for u in self.records if u not in event.listed]:
                if not self.records[uid].deleted:
                    touched += self._on_unwanted(uid, now)
            touched += [*self._claim_orphans(now), *self._judge_waiting(now)]
        return touched

    def _claim_orphans(self, now: float) -> list[PodRecord]:
        """Pods the runtime has and nobody wants, known only once every source has spoken: they are killed."""
        claimed = []
        for uid, observation in list(self.unclaimed.items()):
            del self.unclaimed[uid]
            record = from_runtime(observation)
            record.deleted = True
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
            return self._claim_orphans(now) if self.sources_ready else []
        fresh = observation.observed_at > max(record.observed_at, self._started_at)
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
        self.pressures = event.pressures
        self.supplemental_groups_policy = event.supplemental_groups_policy
        self.runtime_heard = self.runtime_heard or event.reachable
        self._judge_waiting(now)
        at_work = self.pods.at_work()
        if back:
            for record in at_work:
                record.retry_at = 0.0
                record.container_retry_at.clear()
        return at_work

    def _on_outcome(self, event: CallDone | CallFailed, now: float) -> list[PodRecord]:
        record = self.records.get(event.uid)
        if record is None or record.call != event.call:
            return []
        record.call = None
        if isinstance(event, CallDone) and isinstance(event.call, FetchNode):
            touched = self._judge(record, now, node=event.node or self.node, last_word=True)
            return [*touched, record]
        if isinstance(event, CallDone):
            outcomes.take_in_success(record, event, now)
        else:
            outcomes.take_in_failure(record, event, now)
        return [record]

    def forget(self, record: PodRecord) -> None:
        """Nothing of the pod is left."""
        self.pods.remove(record)
        self.forgotten[record.uid] = record.observed_at
        for oldest in list(self.forgotten)[:-FORGOTTEN_KEPT]:
            del self.forgotten[oldest]


def _deletion_requested(pod: Object) -> bool:
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def _is_active(record: PodRecord) -> bool:
    """Taken on, and its containers may run."""
    taken_on = record.judged and not record.rejected and bool(record.pod)
    if record.state is PodState.SYNC:
        return taken_on and not lifecycle.has_ended(record)
    return taken_on and record.state is PodState.TERMINATING
