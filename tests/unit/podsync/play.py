"""Plays podsync's core against `runtime_model`: calls take effect at once, or not, and the process may be killed."""

from dataclasses import dataclass, field
from typing import Any, Self

from bus.messages.device_plugins import DeviceResource
from bus.messages.pleg import ProbeResults
from bus.messages.podsync import PodStatus
from bus.messages.resource_claims import PodClaims
from bus.messages.volume import MountedVolumes
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.cri.resize_writes import MemoryInUseError
from services.podsync.core.machine import PodSync, Settings
from services.podsync.core.placement.pod_placement import PodPlacement
from services.podsync.core.pod.events import (
    DEVICES_REFUSED,
    CallFailed,
    ClaimsChanged,
    ClaimsFreshness,
    DevicesChanged,
    DevicesFreshness,
    Event,
    PodDesired,
    PodObserved,
    PodUndesired,
    ProbesChanged,
    RuntimeChanged,
    RuntimeListed,
    SourcesFreshness,
    TimePassed,
)
from services.podsync.core.pod.instructions import (
    Call,
    ForgetPod,
    Instruction,
    InterruptCall,
    PublishAdmitted,
    PublishStatus,
    RecordEvent,
    ReportInternalError,
    SavePod,
    WakeAt,
)
from services.podsync.core.pod.published_items import Published
from shared.model.device_action import DeviceAction
from shared.model.frozen_copy import replace
from shared.model.probes import ProbeResult
from shared.model.runtime import ContainerState
from tests.unit.podsync.invariants import check_invariants
from tests.unit.podsync.pods import Pod, a_container, a_pod, every_step
from tests.unit.podsync.runtime_model import RuntimeModel, WriteRefusedError

__all__ = ["KilledError", "Play", "Pod", "a_container", "a_pod", "every_step"]


class KilledError(Exception):
    """The process was killed here."""


@dataclass
class Play(RuntimeModel):
    """One podsync process after another against one runtime."""

    fail: dict[str, tuple[str, str]] = field(default_factory=dict)  # call name -> code, description; fails once
    fail_always: dict[str, tuple[str, str]] = field(default_factory=dict)
    hang: set[str] = field(default_factory=set)  # call names that are not answered
    unbegun: set[str] = field(default_factory=set)  # call names that are interrupted before they are performed
    only_urgent: bool = False  # what is in no hurry to be saved never gets to the disk
    listed: bool = False  # pleg's list is complete
    kill_at: int = -1  # number of the step at which the process dies; -1 = never
    disk: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    statuses: dict[str, PodStatus] = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)
    volumes: dict[str, MountedVolumes] = field(default_factory=dict)
    wanted: dict[str, Pod] = field(default_factory=dict)
    source: str = "file"
    facts: MachineFacts = field(default_factory=MachineFacts)
    joins_cluster: bool = False
    runtime_reported: bool = True
    sources_complete: bool = True  # as of the next start
    plugins_listed: bool = True  # whether volume has listed the resources of device plugins, as of the next start
    inherited: dict[str, PodPlacement] = field(default_factory=dict)  # as of the next start
    agent_start: str = ""  # identity of the start of the agent, as of the next start of podsync
    machine: str = ""  # identity of the machine's boot, as of the next start of podsync
    mistakes_expected: bool = False
    devices: dict[str, DeviceResource] = field(default_factory=dict)  # of device plugins, by resource
    claims: dict[str, PodClaims] = field(default_factory=dict)  # resource claims as volume publishes them, by pod
    claims_listed: bool = True  # whether volume has published all of them, as of the next start
    device_action: DeviceAction = DeviceAction.NONE  # as of the next start
    start_places: int = 0  # how many pods start at once, as of the next start

    def __post_init__(self) -> None:
        self.steps = self.boot = 0
        self.wakes: list[float] = []
        self.start()

    def start(self) -> None:
        """A new podsync process: checkpoint, then the desired pods of the sources."""
        self.boot += 1
        settings = Settings(
            boot=self.boot,
            started_at=self.wall,
            facts=self.facts,
            agent_start=self.agent_start,
            machine=self.machine,
            inherited=self.inherited,
            joins_cluster=self.joins_cluster,
            device_action=self.device_action,
            start_places=self.start_places,
        )
        self.core = PodSync(settings, {uid: dict(data) for uid, data in self.disk.items()})
        self.queue: list[Instruction] = []
        self.wakes = []
        self._take(self.core.start(self.wall))
        for resource in self.devices.values():
            self.handle(DevicesChanged(name=resource.resource, resource=resource))
        if self.plugins_listed:
            self.handle(DevicesFreshness(complete=True, stale=False))
        if self.claims_listed:
            self._hand_over_claims()
        if self.listed:
            for uid in self.sandboxes:
                self.handle(PodObserved(observation=self.look(uid)))
            self.handle(RuntimeListed(complete=True, stale=False))
        if self.runtime_reported:
            self.handle(RuntimeChanged(reachable=True, network_ready=True))
        for uid, pod in self.wanted.items():
            self.handle(PodDesired(uid=uid, source=self.source, pod=pod))
        self.handle(SourcesFreshness(complete=self.sources_complete, stale=False, listed=frozenset(self.wanted)))

    def restart(self) -> None:
        """Start a new process, and do everything that it does at once."""
        self.start()
        self.run()

    def run(self) -> None:
        """Do everything there is to do now; start over after a kill."""
        while self.queue:
            try:
                self._do(self.queue.pop(0))
            except KilledError:
                self.start()

    def want(self, pod: Pod) -> None:
        """A source lists the pod."""
        self.wanted[pod["metadata"]["uid"]] = pod
        self.happen(PodDesired(uid=pod["metadata"]["uid"], source=self.source, pod=pod))

    def wanting(self, *pods: Pod) -> Self:
        """Return this play after a source has listed these pods, one after the other."""
        for pod in pods:
            self.want(pod)
        return self

    def drop(self, uid: str) -> None:
        """A source does not list the pod any more."""
        del self.wanted[uid]
        self.happen(PodUndesired(uid=uid))

    def later(self, seconds: float) -> None:
        """Time passes, waking at every moment asked for on the way."""
        end = self.wall + seconds
        while True:
            due = [w for w in self.wakes if w <= end]
            if not due:
                break
            self.wall = max(self.wall, min(due))
            self.wakes = [w for w in self.wakes if w > self.wall]
            self.happen(TimePassed())
        self.wall = max(self.wall, end)

    def handle(self, event: Event) -> None:
        """Hand an event to the core and queue what it asks for."""
        self._take(self.core.handle(event, self.wall))
        check_invariants(self.core)

    def happen(self, event: Event) -> None:
        """Give the core this event, and do all that follows from it."""
        self.handle(event)
        self.run()

    def plug(self, resource: DeviceResource) -> None:
        """Let a device plugin list its devices, or let its connection end."""
        self.devices[resource.resource] = resource
        self.happen(DevicesChanged(name=resource.resource, resource=resource))

    def list_claims(self) -> None:
        """Let volume publish the resource claims of all pods."""
        self._hand_over_claims()
        self.run()

    def put_claims(self, uid: str, claims: PodClaims | None) -> None:
        """Let volume publish the resource claims of a pod; None = it has none (any more)."""
        self.claims.pop(uid, None)
        if claims is not None:
            self.claims[uid] = claims
        self.happen(ClaimsChanged(uid=uid, claims=claims))

    def exit(self, uid: str, code: int, name: str = "c", reason: str = "") -> None:
        """The container's process ends by itself; pleg sees it."""
        for i, c in enumerate(self.containers[uid]):
            if c.name == name and c.state is ContainerState.RUNNING:
                at = int(self.wall * 1e9)
                self.containers[uid][i] = replace(
                    c, state=ContainerState.EXITED, exit_code=code, reason=reason, finished_at=at
                )
        self.observe(uid)

    def probed(self, uid: str, name: str = "c", **results: str) -> None:
        """pleg publishes results of the running instance; no results: it probes a new one."""
        running = next(c.id for c in self.containers[uid] if c.name == name and c.state is ContainerState.RUNNING)
        probes = {kind: ProbeResult(result) for kind, result in results.items()}
        found = ProbeResults(pod_uid=uid, container=name, **probes) if results else None
        self.happen(ProbesChanged(container_id=running, pod_uid=uid, results=found))

    def observe(self, uid: str) -> None:
        """pleg reports the pod as it is."""
        self.wall += 0.001
        self.happen(PodObserved(observation=self.look(uid)))

    def lose(self, uid: str) -> None:
        """The record of the pod is lost, and the process restarts."""
        del self.disk[uid]
        self.restart()

    def reason(self, container: str, uid: str = "u1") -> tuple[str, str]:
        """Why the container waits: reason and message, "" where it does not."""
        return self.core.tracked[uid].progress(container).reason or ("", "")

    def _hand_over_claims(self) -> None:
        for claims in self.claims.values():
            self.handle(ClaimsChanged(uid=claims.uid, claims=claims))
        self.handle(ClaimsFreshness(complete=True, stale=False))

    def _take(self, instructions: list[Instruction]) -> None:
        self.queue += instructions

    def point(self) -> None:
        """A place where the process may die."""
        self.steps += 1
        if self.steps == self.kill_at:
            raise KilledError

    def _do(self, instruction: Instruction) -> None:
        self.point()
        match instruction:
            case SavePod(uid=uid, record=record, urgent=urgent):
                if urgent or not self.only_urgent:
                    self.disk[uid] = record
            case ForgetPod(uid=uid):
                self.disk.pop(uid, None)
                self.published.pop(uid, None)
                self.statuses.pop(uid, None)
            case PublishAdmitted(published=published):
                self.published[published.admitted.uid] = published
            case PublishStatus(status=status):
                self.statuses[status.uid] = status
            case RecordEvent(event=event):
                self.events.append(f"{event.type} {event.reason}: {event.message}")
            case WakeAt(when=when):
                self.wakes.append(when)
            case ReportInternalError(error=error):
                if not self.mistakes_expected:
                    raise error
            case InterruptCall(uid=uid, reads_only=reads_only):
                call = next(call for call in reversed(self.calls) if call.uid == uid)
                self.log.append(f"InterruptCall {type(call).__name__}{' that reads' if reads_only else ''}")
                if reads_only and type(call).__name__ not in self.unbegun:
                    return  # it has asked the runtime already
                failed = CallFailed(uid=uid, call=call, completed_at=self.wall, code="", text="", description="")
                self.handle(replace(failed, interrupted=True, begun=type(call).__name__ not in self.unbegun))
            case _:
                assert isinstance(instruction, Call), instruction
                self._call(instruction)

    def _call(self, call: Call) -> None:
        name = type(call).__name__
        self.log.append(name)
        self.calls.append(call)
        if name in self.hang:
            self.hang.discard(name)
            return
        failure = self.fail.pop(name, None) or self.fail_always.get(name) or self.refusal(call)
        try:
            done = self.effect(call) if failure is None else None
        except (MemoryInUseError, WriteRefusedError) as error:
            failure, done = ("", str(error)), None
        if failure is not None or done is None:
            code, text = failure or ("", "")
            full = text if code in ("Unknown", "") else f"rpc error: code = {code} desc = {text}"
            failed = CallFailed(uid=call.uid, call=call, completed_at=self.wall, code=code, text=full, description=text)
            reason = DEVICES_REFUSED if text and text == self.refuses_devices else ""
            self.handle(replace(failed, reason=reason))
            return
        self.point()  # the runtime has done it, we have no answer
        self.handle(done)
