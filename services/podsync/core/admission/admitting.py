"""When a new pod is admitted or rejected, beside which other pods, and which of them it preempts (pods.md 3).

Waits for the facts that a verdict rests on; `verdict` decides. Changes records and does no more.
"""

from collections.abc import Mapping
from dataclasses import replace

from bus.messages.podsync import PodState
from services.podsync.core.admission.node_view import MachineFacts, NodeView, node_view
from services.podsync.core.admission.verdict import Verdict, admit
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.record import PodRecord, from_desired
from services.podsync.core.pod.records import Records
from shared.model.objects import Object
from shared.timestamps import rfc3339


class Admissions:
    """Of one node. `desired`: by UID, the pods that the sources are known to list. `agent_start`: identity of the start
    of the agent that this process belongs to, "" = not known."""

    def __init__(self, pods: Records, desired: Mapping[str, object], facts: MachineFacts, agent_start: str) -> None:
        self._pods, self._desired, self._facts, self._agent_start = pods, desired, facts, agent_start
        self.node: Object | None = None  # as the API server has it
        self.node_known = False  # the API server's Node, or that there is none, or that nothing can be known of it
        self.runtime_known = False  # the runtime has reported its features
        self.sources_complete = False  # and fresh
        self._doubted = False  # some verdict waits for the sources to list pods of the checkpoint
        self.pressures: tuple[str, ...] = ()
        self.supplemental_groups_policy = False

    def on_listed(self, record: PodRecord, now: float, *, first: bool) -> list[PodRecord]:
        """A source lists the pod (`first`: for the first time in this process). Admits or rejects it, and the pods
        whose verdicts waited for that. Returns the records that changed."""
        if first and self._doubted:
            self._doubted = False
            return self.judge_waiting(now)
        if record.saved.admission_decided or record.asks_for_node or not self._may_judge(record):
            return []
        return [*self.judge(record, now, node=self.node, last_word=False), record]

    def _may_judge(self, record: PodRecord) -> bool:
        """A source lists the pod, the runtime's features are known, and so is the Node. A static pod does not wait for
        the Node: it may be the API server itself."""
        return record.uid in self._desired and self.runtime_known and (record.is_static or self.node_known)

    def judge_waiting(self, now: float) -> list[PodRecord]:
        """Admit or reject the pods that waited for a fact, the oldest first."""
        waiting = [
            record
            for record in self._pods.at_work()
            if not record.saved.admission_decided
            and not record.asks_for_node
            and record.saved.pod
            and self._may_judge(record)
        ]
        touched: list[PodRecord] = []
        for record in sorted(
            waiting, key=lambda r: str((r.saved.pod.get("metadata") or {}).get("creationTimestamp") or "")
        ):
            touched += [*self.judge(record, now, node=self.node, last_word=False), record]
        return touched

    def judge(self, record: PodRecord, now: float, *, node: Object | None, last_word: bool) -> list[PodRecord]:
        """Admission's verdict, given once and saved with the record; returns the pods preempted for this one. Leaves
        the pod without a verdict while that may change with facts that are not known yet."""
        view = node_view(
            node,
            self._facts,
            pressures=self.pressures,
            supplemental_groups_policy=self.supplemental_groups_policy,
        )
        others = [other for other in self.active() if other.uid != record.uid]
        if record.is_static:  # it does not wait for the API server to confirm its pods
            others = [other for other in others if other.uid in self._desired or other.is_static]
        listed = [other for other in others if other.uid in self._desired]
        verdict = self._verdict(record, view, others)
        hindered = (verdict.reason or verdict.victims) and len(listed) < len(others)
        if hindered and verdict != self._verdict(record, view, listed):
            self._doubted = True
            return []  # it depends on pods of the checkpoint that the sources may not list any more
        if verdict.reason and not self.node_known:
            return []
        record.asks_for_node = verdict.ask_for_node and not last_word
        if record.asks_for_node:
            return []  # its labels may have changed meanwhile: the Node is read before the pod is refused
        record.saved = replace(
            record.saved,
            admission_decided=True,
            decided_by=self._agent_start,
            rejected=verdict.reason,
            rejected_message=verdict.message,
            victims=verdict.victims,
        )
        if verdict.reason:
            lifecycle.move(record, PodState.FINISHED)
        return self._preempt(record, verdict, now)

    def _verdict(self, record: PodRecord, view: NodeView, others: list[PodRecord]) -> Verdict:
        phase = str(record.api_status.get("phase") or "")
        return admit(record.saved.pod, phase, view, [other.saved.pod for other in others])

    def active(self) -> list[PodRecord]:
        """The pods that count for admission, preemption and QoS cgroups (pods.md 3.1): admitted, not known to
        have ended, and listed by a source. Until the sources are complete the checkpoint's pods count as listed."""
        return [record for record in self._pods.at_work() if _is_active(record) and self._may_be_listed(record)]

    def _may_be_listed(self, record: PodRecord) -> bool:
        if record.uid in self._desired:
            return True
        return not self.sources_complete and (not record.saved.deleted or record.deletion_requested)

    def reopen_rejected(self, now: float, skew: float) -> None:
        """At a new start of the agent its rejected static pods are admitted or rejected anew; the verdict on a pod of
        the API server is final, as its status there is. `now`: steady seconds; `skew`: of the wall clock from them."""
        for record in list(self._pods.by_uid.values()):
            if (
                record.saved.rejected
                and record.is_static
                and not record.saved.deleted
                and record.saved.decided_by != self._agent_start
            ):
                again = from_desired(record.uid, record.saved.source, record.saved.pod)
                started = rfc3339(now + skew)
                again.saved = replace(again.saved, start_time=started, active_since=now, admission_decided=False)
                self._pods.add(again)

    def _preempt(self, record: PodRecord, verdict: Verdict, now: float) -> list[PodRecord]:
        victims = [self._pods.by_uid[uid] for uid in verdict.victims]
        for victim in victims:
            text = "Preempted in order to admit critical pod"
            victim.note("Warning", "Preempting", text, "")
            disruption = "Pod was preempted by Kubelet to accommodate a critical pod."
            ending = {"reason": "Preempting", "message": text, "disruption": disruption}
            victim.saved = replace(victim.saved, ending=ending)
            if victim.saved.state is PodState.SYNC:
                lifecycle.begin_termination(victim, reason=f"preempted for {record.description}", now=now)
        return victims


def _is_active(record: PodRecord) -> bool:
    """Taken on, and its containers may run."""
    taken_on = record.saved.admission_decided and not record.saved.rejected and bool(record.saved.pod)
    if record.saved.state is PodState.SYNC:
        return taken_on and not lifecycle.has_ended(record)
    return taken_on and record.saved.state is PodState.TERMINATING
