"""PodSync: the one gate of podsync's core. Events and the time go in, instructions come out.

Lets `node_state` take an event in and `steps` decide what each pod it touched needs next; saves, publishes and calls
follow from that. Must not know how anything is done.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from bus.messages.event import KubeEvent
from bus.messages.podsync import PodState, PodStatus
from services.podsync.core.admission.node_view import MachineFacts, node_addresses
from services.podsync.core.node_state import NodeState
from services.podsync.core.outcomes import FIRST_RETRY_SECONDS, RETRY_SECONDS, jitter
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.events import (
    Event,
    TimePassed,
)
from services.podsync.core.pod.instructions import (
    Call,
    ForgetPod,
    Instruction,
    InterruptCall,
    KillContainer,
    KillPod,
    LookAtPod,
    PublishAdmitted,
    PublishStatus,
    PullImage,
    RecordEvent,
    RemoveContainers,
    RemoveSandboxes,
    ReportInternalError,
    RunPostStartHook,
    SavePod,
    WakeAt,
)
from services.podsync.core.pod.observed import outdated
from services.podsync.core.pod.published import published
from services.podsync.core.pod.record import NEVER, TERMINAL_PHASES, PodRecord
from services.podsync.core.pod.saved_record import must_be_saved, not_after, persisted
from services.podsync.core.pod.situation import Step, World
from services.podsync.core.status.pod_status import container_ids, is_starting, pod_status, withheld
from services.podsync.core.sync.pre_stop import note_begun_hooks, with_begun_hooks
from services.podsync.core.sync.steps import next_step
from shared.podspec.containers import field_path
from shared.timestamps import rfc3339


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the core is told once: the boot counter on disk, back-off ceiling (seconds), when this process began."""

    boot: int
    started_at: float  # CLOCK_MONOTONIC seconds; observations from before are another life's
    maximum_backoff: float = 300.0
    sync_seconds: float = 60.0  # between two looks at a pod of which nothing is heard
    node_ips: tuple[str, ...] = ()  # where the Node object has none
    facts: MachineFacts = field(default_factory=MachineFacts)
    agent_start: str = ""  # identity of the start of the agent (of its supervisord) that this process belongs to
    joins_cluster: bool = False  # there is a Node to hear of before pods of the API server are judged


class PodSync:
    """All pods of the node. Call `handle` for every event, in the order they come."""

    def __init__(self, settings: Settings, checkpoint: dict[str, dict[str, Any]] | None = None) -> None:
        self.settings = settings
        self._addresses_of: Any = None  # the Node that `_addresses` are of
        self._addresses: tuple[str, ...] = ()
        self.node_state = NodeState(settings.started_at, settings.facts, checkpoint or {}, settings.agent_start)
        self.node_state.admissions.node_known = not settings.joins_cluster

    @property
    def records(self) -> dict[str, PodRecord]:
        """Every pod of the node by UID."""
        return self.node_state.records

    @property
    def node_ips(self) -> tuple[str, ...]:
        """The node's addresses for statuses, environments and hooks: the Node's, where it has none the machine's."""
        node = self.node_state.admissions.node
        if node is not self._addresses_of:
            self._addresses_of, self._addresses = node, node_addresses(node)
        return self._addresses or self.settings.node_ips

    def start(self, now: float) -> list[Instruction]:
        """The instructions of a new life: publish what the checkpoint says, look at every pod that is not finished."""
        out: list[Instruction] = []
        self.node_state.admissions.reopen_rejected(now, self.node_state.skew)
        for record in list(self.records.values()):
            record.saved = not_after(record.saved, now)  # the clock may have been set back meanwhile
            out += self._advance_alone(record, "podsync started", now)
        return out

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in one event; `now` is seconds of a clock that nobody sets: the wall clock's as this process began, and
        steady from there; `node_state.skew` says how far the wall clock has gone away from it since."""
        touched = self.node_state.take_in(event, now)
        out: list[Instruction] = []
        for record in touched:
            if record.uid in self.records:
                out += self._advance_alone(record, event.cause, now)
        if isinstance(event, TimePassed):
            out += self._next_wake(now)
        return out

    def _next_wake(self, now: float) -> list[Instruction]:
        """The clock has one alarm, for the earliest wish; it has gone off, so the others' are made known again."""
        left = [r.wake_at for r in self.node_state.pods.at_work() if r.call is None and now < r.wake_at < NEVER]
        return [WakeAt(cause="others wait longer", when=min(left))] if left else []

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """What the checkpoint holds of every pod; the constructor's `checkpoint` is its inverse."""
        return {uid: persisted(record) for uid, record in self.records.items()}

    def validate(self) -> None:
        """Raise AssertionError where an invariant is broken; tests call it after every event."""
        started: dict[str, str] = {}
        for uid, record in self.records.items():
            assert uid == record.uid
            assert record.uid not in self.node_state.unclaimed
            if record.saved.state is PodState.SYNC:
                assert not record.saved.deleted, f"{record.description} is deleted and not terminating"
            if record.saved.state in (PodState.TERMINATED, PodState.FINISHED) and record.observed.is_current:
                assert not record.alive, f"{record.description} is {record.saved.state} with running containers"
            if record.saved.state is PodState.SYNC and record.instances and record.is_static:
                other = started.setdefault(record.full_name, uid)
                assert other == uid, f"two pods run as {record.full_name}"
            per_attempt = [(c.name, c.attempt, c.sandbox_id) for c in record.instances]
            assert len(per_attempt) == len(set(per_attempt)), f"{record.description}: two containers of one attempt"

    def _advance_alone(self, record: PodRecord, cause: str, now: float) -> list[Instruction]:
        """Advance one pod; where that fails the pod is tried again later, and the others know nothing of it."""
        call = record.call
        try:
            return self._advance(record, cause, now)
        except Exception as error:
            record.call = call
            record.wake_at = now + RETRY_SECONDS
            record.retry = replace(record.retry, at=record.wake_at)
            wake = WakeAt(cause="a decision failed", when=record.retry.at)
            return [ReportInternalError(cause=cause, uid=record.uid, error=error), wake]
        finally:
            self.node_state.pods.settle(record)

    def _advance(self, record: PodRecord, cause: str, now: float) -> list[Instruction]:
        """Everything that follows for one pod: its state, its status, its next call."""
        out: list[Instruction] = []
        until = (
            lifecycle.deadline(record) if record.saved.state is PodState.SYNC and not record.saved.rejected else None
        )
        if until is not None and until <= now:
            lifecycle.exceed_deadline(record, now)
        events = record.take_events()
        record.volumes = self.node_state.volumes.get(record.uid)
        if record.saved.state is PodState.SYNC and record.observed.is_current and now >= record.resync_at > 0:
            # The safety net under every event that may have been missed.
            record.observed = outdated(record.observed)
        if record.saved.rejected and record.published is None:
            events.append(("Warning", record.saved.rejected, record.saved.rejected_message, ""))
        self._refresh_status(record, now)
        shown_from = _shown_from(record)
        step, under_way, stopped = Step(), record.call is not None, False
        if _is_kept_from_ending(record):
            record.given_up = True
            out.append(InterruptCall(cause=cause, uid=record.uid))
        while not under_way:
            if record.saved.state is PodState.SYNC and not record.saved.rejected and lifecycle.has_ended(record):
                lifecycle.begin_termination(record, reason="the pod has run to its end", now=now)
            step = next_step(record, self._world(record, now))
            events += step.events
            if not step.done:
                break
            if record.saved.state is PodState.TERMINATING:
                lifecycle.move(record, PodState.TERMINATED)
                stopped = True
            elif record.saved.state is PodState.TERMINATED:
                lifecycle.move(record, PodState.FINISHED)
                record.saved = replace(record.saved, finished_at=now)
            else:
                return out + self._forget(record, cause, now)
        if not under_way:
            self._show_reasons(record, step, events)
        self._delay_repeated_call(record, step, now)
        step.call = with_begun_hooks(record, step.call, now)
        note_begun_hooks(record, step.call, now)
        if _shown_from(record) != shown_from:
            self._refresh_status(record, now)
        out += self._save_and_publish(record, cause, step.call)
        out += [RecordEvent(cause=cause, event=self._event(record, now, *entry)) for entry in events]
        if step.call is not None:
            record.call, record.given_up = replace(step.call, cause=cause), False
            out.append(record.call)
        if isinstance(step.call, LookAtPod):
            record.resync_at = now + self.settings.sync_seconds * (1 + jitter(record) / 2)
        elif record.saved.state is PodState.SYNC and record.call is None and record.resync_at:
            step.wake_earlier(record.resync_at)
        if until is not None and until > now:
            step.wake_earlier(until)
        record.wake_at = step.wake_at or NEVER
        if step.wake_at:
            out.append(WakeAt(cause=step.waits_for or "back-off", when=step.wake_at))
        if record.saved.state is PodState.FINISHED and record.call is None:
            out += self._wake_namesakes(record, now)
        if stopped:
            at_work = self.node_state.pods.at_work()
            for other in [other for other in at_work if record.uid in other.saved.victims and other.call is None]:
                out += self._advance_alone(other, f"{record.description} stopped", now)
        return out

    def _delay_repeated_call(self, record: PodRecord, step: Step, now: float) -> None:
        """Repeat a call that has just succeeded only after a delay: the runtime does not show its effect yet."""
        if step.call is not None and step.call == record.retry.last_done:
            record.retry = replace(record.retry, last_done=None, at=now + FIRST_RETRY_SECONDS)
            step.call = None
            step.wake_earlier(record.retry.at)

    def _world(self, record: PodRecord, now: float) -> World:
        return World(
            now=now,
            name_taken=record.is_static
            and any(_holds_name(other, record) for other in self.node_state.pods.namesakes(record)),
            network_ready=self.node_state.network_ready,
            network_message=self.node_state.network_message,
            runtime_listed=self.node_state.runtime_listed,
            volumes_known=self.node_state.volumes_known,
            maximum_backoff=self.settings.maximum_backoff,
            still_listed=record.uid in self.node_state.desired,
            victims_until=self._patience_with_victims(record, now),
            node_ips=self.node_ips,
            skew=self.node_state.skew,
        )

    def _patience_with_victims(self, record: PodRecord, now: float) -> float:
        """Return the latest time to wait for the pods preempted for this one (pods.md 3.5, 4.4)."""
        until = 0.0
        for uid in record.saved.victims:
            victim = self.records.get(uid)
            if victim is None or victim.saved.state not in (PodState.SYNC, PodState.TERMINATING):
                continue
            limit = victim.saved.terminating_since + max(1.5 * victim.saved.grace_seconds, 10.0)
            if limit <= now:
                record.saved = replace(record.saved, victims=tuple(v for v in record.saved.victims if v != uid))
                text = "Container runtime did not kill the pod within specified grace period."
                victim.note("Warning", "ExceededGracePeriod", text, "")
            until = max(until, limit)
        return until if record.saved.victims else 0.0

    def _refresh_status(self, record: PodRecord, now: float) -> None:
        if not record.saved.pod or not record.saved.admission_decided:
            return
        wall = now + self.node_state.skew
        status = pod_status(record, now=wall, runtime_name=self.node_state.runtime_name, node_ips=self.node_ips)
        phase = status["phase"]
        if phase in TERMINAL_PHASES and not record.saved.rejected and phase != record.saved.outcome:
            record.saved = replace(record.saved, outcome=phase)
        record.status = withheld(record, status)

    def _show_reasons(self, record: PodRecord, step: Step, events: list[tuple[str, str, str, str]]) -> None:
        """Waiting reasons found on the way; the events that go with one already shown are not repeated."""
        for container, reason in step.reasons.items():
            if record.reasons.get(container) == reason:
                events[:] = [e for e in events if e[3] != container or e not in step.events]
            record.reasons[container] = reason
        if step.waits_for and record.waits_for == step.waits_for:
            events[:] = [e for e in events if e not in step.events]
        record.waits_for = step.waits_for

    def _save_and_publish(self, record: PodRecord, cause: str, call: Call | None) -> list[Instruction]:
        """What only we know is saved first; so is all the rest when what it came from is about to be removed."""
        out: list[Instruction] = []
        changed = record.status != record.published_status
        if changed or record.last_saved != (record.saved, record.attempts):
            urgent = must_be_saved(record) or isinstance(call, RemoveContainers | RemoveSandboxes)
            record.last_saved = record.saved, record.attempts
            out.append(SavePod(cause=cause, uid=record.uid, record=persisted(record), urgent=urgent))
        if record.published_from is not record.saved and record.saved.admission_decided:
            record.published_from = record.saved
            shown = published(record.uid, record.name, record.namespace, record.saved)
            if shown != record.published:
                record.published = shown
                out.append(PublishAdmitted(cause=cause, published=shown))
        running = container_ids(record)
        if (changed or running != record.published_ids) and record.saved.pod and record.may_be_shown:
            record.published_status, record.published_ids = record.status, running
            record.version += 1
            status = PodStatus(
                uid=record.uid,
                name=record.name,
                namespace=record.namespace,
                version=(self.settings.boot, record.version),
                status=record.status,
                container_ids=running,
            )
            out.append(PublishStatus(cause=cause, status=status, on_the_way=is_starting(record)))
        return out

    def _forget(self, record: PodRecord, cause: str, now: float) -> list[Instruction]:
        """Nothing of the pod is left. If it is wanted again under the same UID it starts anew."""
        self.node_state.forget(record)
        out: list[Instruction] = [ForgetPod(cause=cause, uid=record.uid)]
        desired = self.node_state.desired.get(record.uid)
        if record.saved.restart_requested and desired is not None:
            out += self.handle(desired, now)
        return out + self._wake_namesakes(record, now)

    def _wake_namesakes(self, record: PodRecord, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for other in self.node_state.pods.namesakes(record):
            if other.call is None and other.saved.state is PodState.SYNC:
                out += self._advance_alone(other, f"{record.description} finished", now)
        return out

    def _event(self, record: PodRecord, now: float, kind: str, reason: str, message: str, container: str) -> KubeEvent:
        return KubeEvent(
            type=kind,
            reason=reason,
            message=message,
            namespace=record.namespace,
            name=record.name,
            uid=record.uid,
            resource_version=record.resource_version,
            field_path=field_path(record.saved.pod, container) if container else "",
            time=rfc3339(now + self.node_state.skew),
        )


def _shown_from(record: PodRecord) -> tuple[object, ...]:
    """What of the record a step may change that the status is made from."""
    ways = (
        record.saved.state,
        record.saved.deleted,
        record.saved.ending,
        record.saved.outcome,
        record.saved.restarting_all,
    )
    return (*ways, dict(record.reasons), record.saved.replacing)


def _holds_name(other: PodRecord, record: PodRecord) -> bool:
    """Of two pods of one full name, the one that was started, or is ending, goes first (pods.md 4.5)."""
    if other.saved.state in (PodState.TERMINATING, PodState.TERMINATED):
        return True
    if other.saved.state is not PodState.SYNC or record.instances:
        return False
    return bool(other.instances) or not other.observed.is_current or other.uid < record.uid


def _is_kept_from_ending(record: PodRecord) -> bool:
    """The pod is to end and its call under way only waits: for an image, a hook, for one container to be stopped first,
    or for a grace period longer than the one that holds now. The others would hear of the end when that is over."""
    if record.saved.state is not PodState.TERMINATING or record.given_up:
        return False
    if isinstance(record.call, KillPod):
        return record.saved.grace_seconds < record.call.grace_seconds
    return isinstance(record.call, PullImage | KillContainer | RunPostStartHook)
