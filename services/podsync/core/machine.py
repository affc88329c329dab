"""PodSync: the one gate of podsync's core. Events and the time go in, instructions come out.

Holds every pod's record; lets `steps` decide what a pod needs next; turns outcomes of calls into what is known
(`outcomes`). Must not know how anything is done.
"""

from dataclasses import dataclass, replace
from typing import Any

from bus.messages.event import KubeEvent
from bus.messages.podsync import PodState, PodStatus
from services.podsync.core import lifecycle, outcomes
from services.podsync.core.admission import admit
from services.podsync.core.events import (
    CallDone,
    CallFailed,
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
from services.podsync.core.instructions import (
    Call,
    ForgetPod,
    Instruction,
    PublishAdmitted,
    PublishStatus,
    RecordEvent,
    SavePod,
    WakeAt,
)
from services.podsync.core.pod_status import container_ids, is_terminal, pod_status
from services.podsync.core.record import PodRecord, from_desired, from_runtime, restore
from services.podsync.core.steps import Step, World, next_step
from shared.model.runtime import RuntimePod
from shared.timestamps import rfc3339


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the core is told once: the boot counter on disk, back-off ceiling (seconds), when this process began."""

    boot: int
    started_at: float  # CLOCK_MONOTONIC seconds; observations from before are another life's
    maximum_backoff: float = 300.0
    node_ips: tuple[str, ...] = ()


class PodSync:
    """All pods of the node. Call `handle` for every event, in the order they come."""

    def __init__(self, settings: Settings, checkpoint: dict[str, dict[str, Any]] | None = None) -> None:
        self.settings = settings
        self.records: dict[str, PodRecord] = {uid: restore(data) for uid, data in (checkpoint or {}).items()}
        self.desired: dict[str, PodDesired] = {}
        self.unclaimed: dict[str, RuntimePod] = {}  # seen in the runtime, no record, nobody wants them (yet)
        self.sources_ready = False
        self.volumes_known = False
        self.network_ready = True
        self.network_message = ""
        self.runtime_reachable = True
        self.runtime_name = "containerd"

    def start(self, now: float) -> list[Instruction]:
        """The instructions of a new life: publish what the checkpoint says, look at every pod that is not finished."""
        out: list[Instruction] = []
        for record in list(self.records.values()):
            out += self._advance(record, "podsync started", now)
        return out

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in one event; `now` is wall seconds."""
        touched = self._take_in(event, now)
        out: list[Instruction] = []
        for record in touched:
            if record.uid in self.records:
                out += self._advance(record, event.cause, now)
        return out

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """What the checkpoint holds of every pod; the constructor's `checkpoint` is its inverse."""
        return {uid: record.persisted() for uid, record in self.records.items()}

    def validate(self) -> None:
        """Raise AssertionError where an invariant is broken; tests call it after every event."""
        started: dict[str, str] = {}
        for uid, record in self.records.items():
            assert uid == record.uid
            assert record.uid not in self.unclaimed
            if record.state is PodState.SYNC:
                assert not record.deleted, f"{record.description} is deleted and not terminating"
            if record.state in (PodState.TERMINATED, PodState.FINISHED) and record.looked:
                assert not record.alive, f"{record.description} is {record.state} with running containers"
            if record.state is PodState.SYNC and record.instances:
                other = started.setdefault(record.full_name, uid)
                assert other == uid, f"two pods run as {record.full_name}"
            per_attempt = [(c.name, c.attempt, c.sandbox_id) for c in record.instances]
            assert len(per_attempt) == len(set(per_attempt)), f"{record.description}: two containers of one attempt"

    # --- taking in ---------------------------------------------------------------------------------------------

    def _take_in(self, event: Event, now: float) -> list[PodRecord]:
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
                record = self.records.get(uid)
                if record is None:
                    return []
                if record.instances or record.sandboxes:
                    record.looked = False  # no moment comes with it: look for ourselves
                return [record]
            case VolumesChanged(uid=uid, volumes=volumes):
                record = self.records.get(uid)
                if record is None:
                    return []
                record.volumes = volumes
                return [record]
            case VolumesHeard():
                self.volumes_known = event.complete and not event.stale
                return list(self.records.values())
            case RuntimeChanged():
                return self._on_runtime(event)
            case CallDone(uid=uid) | CallFailed(uid=uid):
                return self._on_outcome(event, now)
            case TimePassed():
                return [r for r in self.records.values() if r.call is None]
            case _:
                return []

    def _on_desired(self, event: PodDesired, now: float) -> list[PodRecord]:
        self.desired[event.uid] = event
        record = self.records.get(event.uid)
        if record is None:
            record = from_desired(event.uid, event.source, event.pod)
            record.start_time = rfc3339(now)
            self.records[event.uid] = record
            seen = self.unclaimed.pop(event.uid, None)
            if seen is not None and seen.observed_at > self.settings.started_at:
                record.observe(seen, seen.observed_at)
            verdict = admit(event.pod)
            record.rejected, record.rejected_message = verdict.reason, verdict.message
            if verdict.reason:
                lifecycle.move(record, PodState.FINISHED)
            record.without_effect = verdict.without_effect
        elif record.deleted:
            record.restart_requested = True
        else:
            record.pod, record.source = event.pod, event.source
        if (event.pod.get("metadata") or {}).get("deletionTimestamp") and record.state is PodState.SYNC:
            record.deleted = True
            lifecycle.begin_termination(record, reason=event.cause or "deleted", now=now)
        return [record]

    def _on_unwanted(self, uid: str, now: float) -> list[PodRecord]:
        record = self.records.get(uid)
        if record is None:
            return []
        record.restart_requested = False
        record.deleted = True
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
            touched += self._claim_orphans(now)
        return touched

    def _claim_orphans(self, now: float) -> list[PodRecord]:
        """Pods the runtime has and nobody wants, known only once every source has spoken: they are killed."""
        claimed = []
        for uid, observation in list(self.unclaimed.items()):
            del self.unclaimed[uid]
            record = from_runtime(observation)
            record.deleted = True
            self.records[uid] = record
            lifecycle.begin_termination(record, reason="in the runtime and wanted by no source", now=now)
            claimed.append(record)
        return claimed

    def _on_observed(self, observation: RuntimePod, now: float) -> list[PodRecord]:
        record = self.records.get(observation.uid)
        if record is None:
            self.unclaimed[observation.uid] = observation
            return self._claim_orphans(now) if self.sources_ready else []
        fresh = observation.observed_at > max(record.observed_at, self.settings.started_at)
        if not fresh:
            return []  # begun before our last call ended: it says nothing about that call
        record.observe(observation, observation.observed_at)
        return [record]

    def _on_runtime(self, event: RuntimeChanged) -> list[PodRecord]:
        back = event.reachable and not self.runtime_reachable
        self.runtime_reachable = event.reachable
        self.runtime_name = event.runtime_name or self.runtime_name
        self.network_ready, self.network_message = event.network_ready, event.network_message
        if back:
            for record in self.records.values():
                record.retry_at = 0.0
                record.container_retry_at.clear()
        return list(self.records.values())

    def _on_outcome(self, event: CallDone | CallFailed, now: float) -> list[PodRecord]:
        record = self.records.get(event.uid)
        if record is None or record.call != event.call:
            return []
        record.call = None
        if isinstance(event, CallDone):
            outcomes.take_in_success(record, event, now)
        else:
            outcomes.take_in_failure(record, event, now)
        return [record]

    # --- deciding ----------------------------------------------------------------------------------------------

    def _advance(self, record: PodRecord, cause: str, now: float) -> list[Instruction]:
        """Everything that follows for one pod: its state, its status, its next call."""
        out: list[Instruction] = []
        events = record.take_events()
        if record.without_effect:
            parts = ", ".join(record.without_effect)
            events.append(("Warning", "PartsWithoutEffect", f"not carried out by this agent yet: {parts}", ""))
            record.without_effect = ()
        if record.rejected and record.admitted is None:
            events.append(("Warning", record.rejected, record.rejected_message, ""))
        self._refresh_status(record, now)
        step, under_way = Step(), record.call is not None
        while not under_way:
            if record.state is PodState.SYNC and not record.rejected and is_terminal(record.status):
                lifecycle.begin_termination(record, reason="the pod has run to its end", now=now)
            step = next_step(record, self._world(record, now))
            events += step.events
            if not step.done:
                break
            if record.state is PodState.TERMINATING:
                lifecycle.move(record, PodState.TERMINATED)
            elif record.state is PodState.TERMINATED:
                lifecycle.move(record, PodState.FINISHED)
                record.finished_at = now
            else:
                return out + self._forget(record, cause, now)
        if not under_way:
            self._show_reasons(record, step, events)
        self._refresh_status(record, now)
        out += self._save_and_publish(record, cause)
        out += [RecordEvent(cause=cause, event=self._event(record, now, *entry)) for entry in events]
        if step.call is not None:
            record.call = _with_cause(step.call, cause)
            out.append(record.call)
        if step.wake_at:
            out.append(WakeAt(cause=step.waits_for or "back-off", when=step.wake_at))
        if record.state is PodState.FINISHED and record.call is None:
            out += self._wake_namesakes(record, now)
        return out

    def _world(self, record: PodRecord, now: float) -> World:
        return World(
            now=now,
            name_taken=any(
                other.full_name == record.full_name and other.uid != record.uid and _holds_name(other, record)
                for other in self.records.values()
            ),
            network_ready=self.network_ready,
            network_message=self.network_message,
            volumes_known=self.volumes_known,
            maximum_backoff=self.settings.maximum_backoff,
        )

    def _refresh_status(self, record: PodRecord, now: float) -> None:
        if record.pod:
            record.status = pod_status(record, now=now, runtime_name=self.runtime_name, node_ips=self.settings.node_ips)

    def _show_reasons(self, record: PodRecord, step: Step, events: list[tuple[str, str, str, str]]) -> None:
        """Waiting reasons found on the way; the events that go with one already shown are not repeated."""
        for container, reason in step.reasons.items():
            if record.reasons.get(container) == reason:
                events[:] = [e for e in events if e[3] != container or e not in step.events]
            record.reasons[container] = reason
        if step.waits_for and record.waits_for == step.waits_for:
            events[:] = [e for e in events if e not in step.events]
        record.waits_for = step.waits_for

    def _save_and_publish(self, record: PodRecord, cause: str) -> list[Instruction]:
        out: list[Instruction] = []
        essential = record.essential()
        changed = record.status != record.published_status
        if essential != record.saved:
            record.saved = essential
            out.append(SavePod(cause=cause, uid=record.uid, record=record.persisted()))
        elif changed:
            out.append(SavePod(cause=cause, uid=record.uid, record=record.persisted(), urgent=False))
        admitted = record.as_admitted()
        if admitted != record.admitted:
            record.admitted = admitted
            out.append(PublishAdmitted(cause=cause, admitted=admitted))
        if changed and record.pod:
            record.published_status = record.status
            record.version += 1
            status = PodStatus(
                uid=record.uid,
                name=record.name,
                namespace=record.namespace,
                version=(self.settings.boot, record.version),
                status=record.status,
                container_ids=container_ids(record),
            )
            out.append(PublishStatus(cause=cause, status=status))
        return out

    def _forget(self, record: PodRecord, cause: str, now: float) -> list[Instruction]:
        """Nothing of the pod is left. If it is wanted again under the same UID it starts anew."""
        del self.records[record.uid]
        out: list[Instruction] = [ForgetPod(cause=cause, uid=record.uid)]
        desired = self.desired.get(record.uid)
        if record.restart_requested and desired is not None:
            out += self.handle(desired, now)
        return out + self._wake_namesakes(record, now)

    def _wake_namesakes(self, record: PodRecord, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for other in list(self.records.values()):
            namesake = other.full_name == record.full_name and other.uid != record.uid
            if namesake and other.call is None and other.state is PodState.SYNC:
                out += self._advance(other, f"{record.description} finished", now)
        return out

    def _event(self, record: PodRecord, now: float, kind: str, reason: str, message: str, container: str) -> KubeEvent:
        return KubeEvent(
            type=kind,
            reason=reason,
            message=message,
            namespace=record.namespace,
            name=record.name,
            uid=record.uid,
            field_path=f"spec.containers{{{container}}}" if container else "",
            time=rfc3339(now),
        )


def _holds_name(other: PodRecord, record: PodRecord) -> bool:
    """Of two pods of one full name, the one that was started, or is ending, goes first (reference pods.md 4.5)."""
    if other.state in (PodState.TERMINATING, PodState.TERMINATED):
        return True
    if other.state is not PodState.SYNC or record.instances:
        return False
    return bool(other.instances) or not other.looked or other.uid < record.uid


def _with_cause(call: Call, cause: str) -> Call:
    return replace(call, cause=cause)
