"""Decides what follows from each event: the entry to podsync's core. Events and the time go in, instructions come out.
`node_state` takes an event in, and `steps` decides what each pod that it touched needs next; saves, publications and
calls follow from that. Must not know how an instruction is carried out.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from bus.messages.device_plugins import DeviceResource
from bus.messages.pleg import RuntimeHandler
from bus.messages.podsync import PodState
from services.podsync.core.admission.node_view import MachineFacts, node_addresses
from services.podsync.core.admission.preemption import wait_for_victims
from services.podsync.core.container_cpus import ContainerCpus
from services.podsync.core.node_state import NodeState
from services.podsync.core.outcomes import RETRY_SECONDS, delay_repeated_call, jitter
from services.podsync.core.placement.pod_placement import PodPlacement
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.claim_status import has_claims
from services.podsync.core.pod.events import Event, StartPlacesChanged, TimePassed
from services.podsync.core.pod.instructions import (
    ForgetPod,
    Instruction,
    InterruptCall,
    LookAtPod,
    RecordEvent,
    ReportInternalError,
    WakeAt,
)
from services.podsync.core.pod.interruption import ENDS_WHILE_IT_READS, is_kept_from_ending
from services.podsync.core.pod.observed_in_runtime import outdated
from services.podsync.core.pod.pod_addresses import family_mismatch
from services.podsync.core.pod.saved_format import not_after
from services.podsync.core.pod.step import Step, StepInputs
from services.podsync.core.pod.tracked_pod import NEVER, TERMINAL_PHASES, PodEvent, TrackedPod
from services.podsync.core.saving import kube_event, save_and_publish, shown_from, with_shown_reasons
from services.podsync.core.start_order.queue import StartQueue
from services.podsync.core.status.pod_status import pod_status, withheld
from services.podsync.core.sync.device_health import follow_device_health
from services.podsync.core.sync.pre_stop import note_begun_hooks, with_begun_hooks
from services.podsync.core.sync.steps import next_step
from shared.model.device_action import DeviceAction
from shared.model.frozen_copy import replace
from shared.model.objects import Object

_STOPPED = (PodState.TERMINATED, PodState.FINISHED)


class Settings(Struct, frozen=True, kw_only=True):
    """Has the constants of the core."""

    boot: int  # the start number
    started_at: float  # CLOCK_MONOTONIC seconds; earlier observations are of another process
    maximum_backoff: float = 300.0  # seconds
    sync_seconds: float = 60.0  # between two evaluations of a pod without events
    node_ips: tuple[str, ...] = ()  # where the Node object has none
    facts: MachineFacts = field(default_factory=MachineFacts)
    agent_start: str = ""  # identity of the start of the agent (of its supervisord) that this process belongs to
    dead_instances_kept: int = 1  # of each container of a pod that has not finished
    cpu_retry_seconds: float = 10.0  # after which a cpuset that could not be set is set again
    # What files of an earlier agent say of pods, by UID; it counts for pods without a record.
    inherited: Mapping[str, PodPlacement] = field(default_factory=dict)
    plugin_wait_seconds: float = 300.0  # for which a new pod waits for a device plugin that is not connected
    device_action: DeviceAction = DeviceAction.NONE  # on devices that become unhealthy, where a pod has none
    machine: str = ""  # identity of the boot of the machine, "" = its shutdown is not followed
    was_cut_off: bool = False  # the machine has booted after a shutdown in which not every pod had its turn
    start_places: int = 0  # how many pods start at once, 0 = any number
    root_dir: str = "/var/lib/kubelet"
    joins_cluster: bool = False  # the Node must be known before pods of the API server are admitted


class PodSync:
    """Decides for all pods of the node. Call `handle` for every event, in the order in which they arrive."""

    def __init__(self, settings: Settings, checkpoint: dict[str, dict[str, Any]] | None = None) -> None:
        self.settings = settings
        self._addresses_of: Any = None  # the Node that has `_addresses`
        self._addresses: tuple[str, ...] = ()
        self.node_state = NodeState(settings.started_at, settings.facts, checkpoint or {}, settings.agent_start)
        self.node_state.cpu_retry_seconds = settings.cpu_retry_seconds
        self.node_state.machine = settings.machine
        self.node_state.admissions.plugin_wait_seconds = settings.plugin_wait_seconds
        self.node_state.admissions.inherited.take_over(settings.inherited)
        self._cpus = ContainerCpus(self.node_state.pods, self.node_state.admissions)
        self._starts = StartQueue(settings.start_places, settings.root_dir)
        self.node_state.admissions.node_known = not settings.joins_cluster

    @property
    def tracked(self) -> dict[str, TrackedPod]:
        """Every pod of the node by UID."""
        return self.node_state.tracked

    @property
    def node_ips(self) -> tuple[str, ...]:
        """The node's addresses for statuses, environments and hooks: the Node's, or the machine's where it has none."""
        node = self.node_state.admissions.node
        if node is not self._addresses_of:
            self._addresses_of, self._addresses = node, node_addresses(node)
        return self._addresses or self.settings.node_ips

    def is_to_run(self, uid: str) -> bool:
        """Return whether the pod is tracked and is not to end."""
        tracked = self.tracked.get(uid)
        return tracked is not None and tracked.saved.state is PodState.SYNC

    def active_pods(self) -> list[Object]:
        """Return the pods whose requests count; a terminating pod counts as long as its containers run."""
        return [tracked.saved.pod for tracked in self.node_state.admissions.active()]

    def shared_cpus(self) -> str:
        """Return the cpuset of containers without CPUs of their own, such as 0-3,8; "" = all CPUs."""
        return self._cpus.shared()

    def placements(self) -> Mapping[str, PodPlacement]:
        """Return the placements of the pods that have one, by UID: the same object until one changes."""
        return self.node_state.admissions.placements()

    def devices(self) -> Mapping[str, DeviceResource]:
        """Return the resources of device plugins by name: the same object until one changes."""
        return self.node_state.admissions.devices.resources

    def devices_known(self) -> bool:
        """Return whether volume has reported the resources of all device plugins since this process has started."""
        return self.node_state.admissions.devices.is_complete

    def runtime_handlers(self) -> tuple[RuntimeHandler, ...] | None:
        """Return the runtime's handlers, None = it has not reported them."""
        return self.node_state.runtime_handlers

    def start(self, now: float) -> list[Instruction]:
        """Return the instructions of a new process: publish what the checkpoint contains, and list every pod that has
        not finished in the runtime."""
        out: list[Instruction] = []
        self.node_state.admissions.reopen_rejected(now, self.node_state.skew)
        self.node_state.start_those_of_other_boots()
        if self.settings.was_cut_off:
            self.node_state.start_those_cut_off()
        for uid in list(self.tracked):
            tracked = self.tracked[uid]  # read now: the decisions about earlier pods may have changed it
            # `not_after`, because the clock may have been set back since it was saved.
            self.node_state.pods.put(replace(tracked, saved=not_after(tracked.saved, now)))
            out += self._advance_alone(uid, "podsync started", now)
        return out

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in one event and return the instructions that follow. `now` is steady seconds, which a change of the
        wall clock does not affect; `node_state.skew` is how far the wall clock is ahead of them."""
        touched = self.node_state.take_in(event, now)
        if isinstance(event, StartPlacesChanged):
            self._starts.places = event.places
        errors = self.node_state.admissions.take_errors()
        out: list[Instruction] = [ReportInternalError(cause=event.cause, uid=uid, error=e) for uid, e in errors.items()]
        for uid in touched:
            if uid in self.tracked:
                out += self._advance_alone(uid, event.cause, now)
        for uid in self._cpus.waiting():
            out += self._advance_alone(uid, event.cause, now)
        out += self._cpus.follow_shared(now)
        out += self._begin_starts(now)
        if isinstance(event, TimePassed):
            out += self._next_wake(now)
        if retry_at := self.node_state.resizes.retry_at:
            out.append(WakeAt(cause="a resize waits", when=retry_at))
        return out

    def _begin_starts(self, now: float) -> list[Instruction]:
        """Advance the pods whose turn to start has come, each once. While others wait, wake when a place is free."""
        out: list[Instruction] = []
        advanced: set[str] = set()
        while ready := [uid for uid in self._starts.ready(now) if uid not in advanced]:
            for uid in ready:
                advanced.add(uid)
                out += self._advance_alone(uid, "its turn to start has come", now)
        if (free_at := self._starts.next_change(now)) < NEVER:
            out.append(WakeAt(cause="pods wait for their turn to start", when=free_at))
        return out

    def _next_wake(self, now: float) -> list[Instruction]:
        """Request the next moment to wake at: the one timer was set for the earliest moment, which is over."""
        left = [r.wake_at for r in self.node_state.pods.at_work() if now < r.wake_at < NEVER]
        return [WakeAt(cause="others wait longer", when=min(left))] if left else []

    def _advance_alone(self, uid: str, cause: str, now: float) -> list[Instruction]:
        """Advance one pod. Where that raises, the pod stays as it was and is tried again later; the other pods are
        not affected."""
        before = self.tracked[uid]
        try:
            return self._advance(before, cause, now)
        except Exception as error:
            retry_at = now + RETRY_SECONDS
            if uid in self.tracked:
                retry = replace(before.retry, at=retry_at)
                self.node_state.pods.put(replace(before, wake_at=retry_at, retry=retry))
            wake = WakeAt(cause="a decision failed", when=retry_at)
            return [ReportInternalError(cause=cause, uid=uid, error=error), wake]
        finally:
            self.node_state.pods.note_rest(uid)
            self._starts.follow(uid, self.tracked.get(uid), now)

    def _advance(self, tracked: TrackedPod, cause: str, now: float) -> list[Instruction]:
        """Return the instructions that follow for one pod, in this order:

        | what | where |
        |---|---|
        | what holds now is taken into the pod | `_take_in` |
        | a call that keeps the pod from ending is interrupted | `is_kept_from_ending` |
        | the next step is decided, where no call is under way; a pod that is gone is forgotten | `_decide` |
        | the step is saved, published, and then performed | `_perform` |
        | the pods that waited for this one are advanced | `_advance_others` |
        """
        had_stopped, until = tracked.saved.state in _STOPPED, lifecycle.active_until(tracked)
        tracked, events = self._take_in(tracked, until, now)
        before = tracked
        out: list[Instruction] = []
        if is_kept_from_ending(tracked):
            tracked = replace(tracked, given_up=True)
            reads_only = isinstance(tracked.call, ENDS_WHILE_IT_READS)
            out.append(InterruptCall(cause=cause, uid=tracked.uid, reads_only=reads_only))
        step = Step(tracked=tracked)
        if tracked.call is None:
            step, events = self._decide(tracked, events, now)
            if step.done:
                return self._forget(step.tracked, cause, now)
        delay_repeated_call(step, now)
        step.call = with_begun_hooks(step.tracked, step.call, now)
        tracked = note_begun_hooks(step.tracked, step.call, now)
        if tracked is not before and shown_from(tracked) != shown_from(before):
            tracked = self._with_status(tracked, now)
        if until is not None and until > now:
            step.wake_earlier(until)
        out += self._perform(tracked, step, events, cause, now)
        out += self._cpus.follow(tracked.uid, cause, now)
        return out + self._advance_others(self.tracked[tracked.uid], had_stopped=had_stopped, now=now)

    def _take_in(self, tracked: TrackedPod, until: float | None, now: float) -> tuple[TrackedPod, list[PodEvent]]:
        """Return the pod with its deadline `until`, volumes, resource claims and status as of now; and the events that
        were noted in it, which are taken out of it."""
        admitted = (
            tracked.saved.state is PodState.SYNC and not tracked.saved.rejected and tracked.saved.admission_decided
        )
        if until is not None and until <= now:
            tracked = lifecycle.past_deadline(tracked, now)
        volumes = self.node_state.volumes.get(tracked.uid)
        if admitted and tracked.saved.state is PodState.SYNC and volumes is not None and volumes.attach_limit:
            tracked = lifecycle.over_attach_limit(tracked, volumes.attach_limit, now)
        claims = self.node_state.claims.get(tracked.uid)
        claims_known = self.node_state.claims_known or not has_claims(tracked.saved)
        outside = (volumes, claims, claims_known)
        if outside != (tracked.volumes, tracked.claims, tracked.claims_known):
            tracked = replace(tracked, volumes=volumes, claims=claims, claims_known=claims_known)
        tracked = follow_device_health(
            tracked, self.node_state.admissions.devices.reported, self.settings.device_action, now
        )
        if events := list(tracked.noted):
            tracked = replace(tracked, noted=())
        if tracked.saved.state is PodState.SYNC and tracked.observed.is_current and now >= tracked.resync_at > 0:
            # The pod is listed again from time to time, in case an event was missed.
            tracked = replace(tracked, observed=outdated(tracked.observed))
        return self._with_status(tracked, now), events

    def _decide(self, tracked: TrackedPod, events: list[PodEvent], now: float) -> tuple[Step, list[PodEvent]]:
        """Return the next step of a pod without a call, and the events with those of the step.

        The pod passes all states on the way in which nothing is left to do; the step is done where that is so in
        FINISHED.

        | state | is left when | to |
        |---|---|---|
        | SYNC | the pod has ended | TERMINATING |
        | TERMINATING | no container of it runs, and the end of lost tasks was tried | TERMINATED |
        | TERMINATED | what it had on the node is removed | FINISHED |
        """
        while True:
            if tracked.saved.state is PodState.SYNC and not tracked.saved.rejected and lifecycle.has_ended(tracked):
                tracked = lifecycle.with_termination(tracked, reason="the pod has ended", now=now)
            tracked, victims_until, late_victims = wait_for_victims(tracked, self.tracked, now)
            for victim in late_victims:
                self.node_state.pods.put(victim)
            step = next_step(tracked, self._step_inputs(tracked, now, victims_until))
            events = [*events, *step.events]
            if not step.done:
                return step, with_shown_reasons(step, events, now)
            if step.tracked.saved.state is PodState.TERMINATING:
                tracked = lifecycle.moved(step.tracked, PodState.TERMINATED)
            elif step.tracked.saved.state is PodState.TERMINATED:
                tracked = lifecycle.moved(step.tracked, PodState.FINISHED)
                tracked = replace(tracked, saved=replace(tracked.saved, finished_at=now))
            else:
                return step, events

    def _perform(
        self, tracked: TrackedPod, step: Step, events: list[PodEvent], cause: str, now: float
    ) -> list[Instruction]:
        """Return the instructions of the step: save and publish, record the events, call, wake. The pod becomes that
        with what was written, called and planned."""
        last_written, out = save_and_publish(tracked, self.settings.boot, cause, step.call)
        wall = now + self.node_state.skew
        out += [RecordEvent(cause=cause, event=kube_event(tracked, entry, wall)) for entry in events]
        call, given_up, resync_at = tracked.call, tracked.given_up, tracked.resync_at
        if step.call is not None:
            call, given_up = replace(step.call, cause=cause), False
            out.append(call)
        if isinstance(step.call, LookAtPod) or (tracked.observed.is_current and not resync_at):
            resync_at = now + self.settings.sync_seconds * (1 + jitter(tracked) / 2)
        elif tracked.saved.state is PodState.SYNC and call is None and resync_at:
            step.wake_earlier(max(resync_at, tracked.retry.at))
        if step.wake_at:
            out.append(WakeAt(cause=step.waits_for or "back-off", when=step.wake_at))
        tracked = replace(
            tracked,
            last_written=last_written,
            call=call,
            given_up=given_up,
            resync_at=resync_at,
            wake_at=step.wake_at or NEVER,
        )
        self.node_state.pods.put(tracked)
        return out

    def _advance_others(self, tracked: TrackedPod, *, had_stopped: bool, now: float) -> list[Instruction]:
        """Advance the pods that waited for the name, the end or the resources of this one."""
        out: list[Instruction] = []
        if tracked.saved.state is PodState.FINISHED and tracked.call is None:
            out += self._wake_namesakes(tracked, now)
        if tracked.saved.state in _STOPPED and not had_stopped:
            at_work = self.node_state.pods.at_work()
            waiting = [other.uid for other in at_work if tracked.uid in other.saved.victims and other.call is None]
            for other in (*waiting, *self.node_state.resizes.decide(now)):
                out += self._advance_alone(other, f"{tracked.description} stopped", now)
        return out

    def _step_inputs(self, tracked: TrackedPod, now: float, victims_until: float) -> StepInputs:
        return StepInputs(
            now=now,
            name_taken=tracked.is_static
            and any(lifecycle.holds_name(other, tracked) for other in self.node_state.pods.namesakes(tracked)),
            network_ready=self.node_state.network_ready,
            network_message=self.node_state.network_message,
            runtime_listed=self.node_state.listed.runtime_listed,
            volumes_known=self.node_state.volumes_known,
            maximum_backoff=self.settings.maximum_backoff,
            dead_instances_kept=self.settings.dead_instances_kept,
            still_listed=tracked.uid in self.node_state.desired,
            victims_until=victims_until,
            node_ips=self.node_ips,
            skew=self.node_state.skew,
            static_cpus=self._cpus.static,
            shared_cpus=self.shared_cpus(),
            occupied_cpus=lambda: self._cpus.occupied(tracked),
            waits_for_turn=lambda: self._starts.must_wait(tracked, now),
        )

    def _with_status(self, tracked: TrackedPod, now: float) -> TrackedPod:
        if not tracked.saved.pod or not (tracked.saved.admission_decided or tracked.device_need is not None):
            return tracked
        wall = now + self.node_state.skew
        status = pod_status(
            tracked,
            now=wall,
            runtime_name=self.node_state.runtime_name,
            node_ips=self.node_ips,
            handlers=self.node_state.runtime_handlers,
            gates_off=self.settings.facts.gates_off,
            devices=self.node_state.admissions.devices.reported,
        )
        if not tracked.saved.rejected:
            if mismatch := family_mismatch(tracked, self.node_ips):
                tracked = tracked.with_event("Warning", "HostIPsIPFamilyMismatch", mismatch, "")
            phase = status["phase"]
            if phase in TERMINAL_PHASES and phase != tracked.saved.outcome:
                tracked = replace(tracked, saved=replace(tracked.saved, outcome=phase))
        shown = withheld(tracked, status)
        return tracked if shown == tracked.status else replace(tracked, status=shown)

    def _forget(self, tracked: TrackedPod, cause: str, now: float) -> list[Instruction]:
        """Forget a pod of which nothing is left. If it is desired again under the same UID, it starts again."""
        self.node_state.listed.forget(tracked)
        out: list[Instruction] = [ForgetPod(cause=cause, uid=tracked.uid)]
        desired = self.node_state.desired.get(tracked.uid)
        if tracked.saved.restart_requested and desired is not None:
            out += self.handle(desired, now)
        return out + self._wake_namesakes(tracked, now)

    def _wake_namesakes(self, tracked: TrackedPod, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for other in self.node_state.pods.namesakes(tracked):
            if other.call is None and other.saved.state is PodState.SYNC:
                out += self._advance_alone(other.uid, f"{tracked.description} finished", now)
        return out
