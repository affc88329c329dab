"""Plays podsync's core against a tiny runtime model: calls take effect at once, or not, and the process may be killed.

Not a test of the runtime client: just enough of a runtime to let the core's decisions run to their end.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from bus.messages.pleg import ProbeResults
from bus.messages.podsync import PodStatus
from bus.messages.volume import MountedVolumes
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.cgroups.pod_cgroup import CgroupValues, pod_cgroup_values
from services.podsync.core.cri.container_resources import container_resources
from services.podsync.core.cri.resize_writes import MemoryInUseError
from services.podsync.core.machine import PodSync, Settings
from services.podsync.core.pod import results
from services.podsync.core.pod.events import (
    CallDone,
    CallFailed,
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
    ContainerStop,
    CreateContainer,
    FetchNode,
    ForgetPod,
    InspectImage,
    Instruction,
    InterruptCall,
    KillContainer,
    KillPod,
    LookAtPod,
    PreparePod,
    PublishAdmitted,
    PublishStatus,
    PullImage,
    RecordEvent,
    RemoveContainers,
    RemoveSandboxes,
    ReportInternalError,
    ResizePod,
    RunPodSandbox,
    RunPostStartHook,
    SavePod,
    StartContainer,
    WakeAt,
)
from services.podsync.core.pod.published import Published
from shared.cri.interface import ImageStatus
from shared.model.probes import ProbeResult
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from shared.podspec.hashing import container_hash
from tests.unit.podsync import resize_model
from tests.unit.podsync.pods import Pod, a_container, a_pod, every_step
from tests.unit.podsync.resize_model import NODE

__all__ = ["KilledError", "Play", "Pod", "a_container", "a_pod", "every_step"]


class KilledError(Exception):
    """The process was killed here."""


@dataclass
class Play:
    """One podsync process after another against one runtime."""

    images: set[str] = field(default_factory=lambda: {"busybox:1"})
    fail: dict[str, tuple[str, str]] = field(default_factory=dict)  # call name -> code, description; fails once
    fail_always: dict[str, tuple[str, str]] = field(default_factory=dict)
    hang: set[str] = field(default_factory=set)  # call names that are not answered
    unbegun: set[str] = field(default_factory=set)  # call names that are interrupted before they are performed
    log_attempts: dict[str, int] = field(default_factory=dict)  # what PreparePod finds among the log files
    only_urgent: bool = False  # what is in no hurry to be saved never gets to the disk
    listed: bool = False  # pleg's list is complete
    outside: set[str] = field(default_factory=set)  # pods whose cgroup is missing
    deaf: bool = False  # StopContainer and StopPodSandbox succeed and change nothing
    kill_at: int = -1  # number of the step at which the process dies; -1 = never
    wall: float = 1_000_000.0
    sandboxes: dict[str, list[Sandbox]] = field(default_factory=dict)
    containers: dict[str, list[Container]] = field(default_factory=dict)
    disk: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    statuses: dict[str, PodStatus] = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)
    volumes: dict[str, MountedVolumes] = field(default_factory=dict)
    wanted: dict[str, Pod] = field(default_factory=dict)
    source: str = "file"
    node: Pod | None = None  # what FetchNode finds
    facts: MachineFacts = field(default_factory=MachineFacts)
    joins_cluster: bool = False
    runtime_reported: bool = True
    sources_complete: bool = True  # as of the next start
    agent_start: str = ""  # identity of the start of the agent, as of the next start of podsync
    mistakes_expected: bool = False
    stops: list[int] = field(default_factory=list)
    stopped: list[ContainerStop] = field(default_factory=list)  # the same, complete
    hooks: list[str] = field(default_factory=list)  # instances whose postStart was run
    made: list[tuple[str, str, int]] = field(default_factory=list)  # every container ever created: uid, name, attempt

    cgroups: dict[str, CgroupValues] = field(default_factory=dict)  # pod's UID -> what its cgroup has
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)  # container id -> LinuxContainerResources
    usage: dict[str, int] = field(default_factory=dict)  # container id, or "" for the pod -> bytes of memory
    writes: list[str] = field(default_factory=list)  # see `resize_model.perform`

    def __post_init__(self) -> None:
        self.steps = self.ids = self.boot = 0
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
            joins_cluster=self.joins_cluster,
        )
        self.core = PodSync(settings, {uid: dict(data) for uid, data in self.disk.items()})
        self.queue: list[Instruction] = []
        self.wakes = []
        self._take(self.core.start(self.wall))
        if self.listed:
            for uid in self.sandboxes:
                self.handle(PodObserved(observation=self.look(uid)))
            self.handle(RuntimeListed(complete=True, stale=False))
        if self.runtime_reported:
            self.handle(RuntimeChanged(reachable=True, network_ready=True))
        for uid, pod in self.wanted.items():
            self.handle(PodDesired(uid=uid, source=self.source, pod=pod))
        self.handle(SourcesFreshness(complete=self.sources_complete, stale=False, listed=frozenset(self.wanted)))

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
        self.handle(PodDesired(uid=pod["metadata"]["uid"], source=self.source, pod=pod))
        self.run()

    def drop(self, uid: str) -> None:
        """A source does not list the pod any more."""
        del self.wanted[uid]
        self.handle(PodUndesired(uid=uid))
        self.run()

    def later(self, seconds: float) -> None:
        """Time passes, waking at every moment asked for on the way."""
        end = self.wall + seconds
        while True:
            due = [w for w in self.wakes if w <= end]
            if not due:
                break
            self.wall = max(self.wall, min(due))
            self.wakes = [w for w in self.wakes if w > self.wall]
            self.handle(TimePassed())
            self.run()
        self.wall = max(self.wall, end)

    def handle(self, event: Event) -> None:
        """Hand an event to the core and queue what it asks for."""
        self._take(self.core.handle(event, self.wall))
        self.core.validate()

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
        self.handle(ProbesChanged(container_id=running, pod_uid=uid, results=found))
        self.run()

    def observe(self, uid: str) -> None:
        """pleg reports the pod as it is."""
        self.wall += 0.001
        self.handle(PodObserved(observation=self.look(uid)))
        self.run()

    def lose(self, uid: str) -> None:
        """The record of the pod is lost, and the process restarts."""
        del self.disk[uid]
        self.start()
        self.run()

    def look(self, uid: str) -> RuntimePod:
        """What the runtime has."""
        return RuntimePod(
            uid=uid,
            name="web",
            namespace="default",
            observed_at=self.wall,
            sandboxes=tuple(sorted(self.sandboxes.get(uid, []), key=lambda s: -s.attempt)),
            containers=tuple(sorted(self.containers.get(uid, []), key=lambda c: -c.created_at)),
        )

    def reason(self, container: str, uid: str = "u1") -> tuple[str, str]:
        """Why the container waits: reason and message, "" where it does not."""
        return self.core.records[uid].progress(container).reason or ("", "")

    def running(self, uid: str) -> list[tuple[str, int]]:
        """Name and attempt of every running container."""
        return [(c.name, c.attempt) for c in self.containers.get(uid, []) if c.state is ContainerState.RUNNING]

    def _take(self, instructions: list[Instruction]) -> None:
        self.queue += instructions

    def _point(self) -> None:
        """A place where the process may die."""
        self.steps += 1
        if self.steps == self.kill_at:
            raise KilledError

    def _do(self, instruction: Instruction) -> None:
        self._point()
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
            case InterruptCall(uid=uid):
                call = next(call for call in reversed(self.calls) if call.uid == uid)
                self.log.append(f"InterruptCall {type(call).__name__}")
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
        failure = self.fail.pop(name, None) or self.fail_always.get(name)
        try:
            done = self._effect(call) if failure is None else None
        except MemoryInUseError as error:
            failure, done = ("", str(error)), None
        if failure is not None or done is None:
            code, text = failure or ("", "")
            full = text if code in ("Unknown", "") else f"rpc error: code = {code} desc = {text}"
            self.handle(
                CallFailed(uid=call.uid, call=call, completed_at=self.wall, code=code, text=full, description=text)
            )
            return
        self._point()  # the runtime has done it, we have no answer
        self.handle(done)

    def _effect(self, call: Call) -> CallDone:
        self.wall += 0.01
        uid = call.uid
        done = CallDone(uid=uid, call=call, completed_at=self.wall)
        match call:
            case InspectImage(image=image):
                found = ImageStatus(id=f"sha256:{image}", size=1) if image in self.images else None
                return replace(done, result=results.ImageInspected(image=found))
            case PullImage(image=image):
                self.images.add(image)
                return replace(done, result=results.ImagePulled(image=ImageStatus(id=f"sha256:{image}", size=1)))
            case RunPodSandbox(attempt=attempt):
                assert all(s.attempt != attempt for s in self.sandboxes.get(uid, [])), "sandbox name is reserved"
                sandbox = Sandbox(
                    id=self._id("s"),
                    attempt=attempt,
                    state=SandboxState.READY,
                    created_at=self.ids,
                    host_network=self.core.records[uid].host_network,
                    ips=("10.0.0.9",),
                )
                self.sandboxes.setdefault(uid, []).append(sandbox)
            case CreateContainer():
                return replace(done, result=results.ContainerCreated(container_id=self._create(call)))
            case StartContainer(container_id=container_id):
                self._change(uid, container_id, ContainerState.RUNNING)
            case RunPostStartHook(container_id=container_id):
                self.hooks.append(container_id)
                return done
            case KillContainer(stop=stop):
                self.stops.append(stop.grace_seconds)
                self.stopped.append(stop)
                if not self.deaf:
                    self._change(uid, stop.container_id, ContainerState.EXITED)
            case KillPod(containers=containers):
                self.stops += [stop.grace_seconds for stop in containers]
                self.stopped += containers
                if self.deaf:
                    return replace(done, result=results.PodListed(pod=self.look(uid)))
                for stop in containers:
                    self._change(uid, stop.container_id, ContainerState.EXITED)
                self.sandboxes[uid] = [
                    replace(s, state=SandboxState.NOTREADY) if s.id in call.sandboxes else s
                    for s in self.sandboxes.get(uid, [])
                ]
            case RemoveContainers(containers=containers):
                gone = {c[0] for c in containers}
                self.containers[uid] = [c for c in self.containers[uid] if c.id not in gone]
            case RemoveSandboxes(sandboxes=sandboxes):
                self.sandboxes[uid] = [s for s in self.sandboxes[uid] if s.id not in sandboxes]
            case FetchNode():
                return replace(done, result=results.NodeRead(node=self.node))
            case ResizePod():
                return self._resize(call, done)
            case PreparePod(runs=runs):
                if not runs:
                    self.outside.discard(uid)
                    self.cgroups.setdefault(uid, pod_cgroup_values(self.core.records[uid].saved.pod, NODE))
                missing = uid in self.outside
                return replace(done, result=results.PodPrepared(log_attempts=self.log_attempts, cgroup_missing=missing))
            case LookAtPod():
                return replace(done, result=results.PodListed(pod=self.look(uid), cgroup_missing=uid in self.outside))
        return replace(done, result=results.PodListed(pod=self.look(uid)))

    def _create(self, call: CreateContainer) -> str:
        mine = self.containers.setdefault(call.uid, [])
        taken = [
            c for c in mine if (c.name, c.attempt, c.sandbox_id) == (call.container, call.attempt, call.sandbox_id)
        ]
        assert not taken, f"a second container of attempt {call.attempt}"
        found = self.core.records[call.uid].container(call.container)
        assert found is not None, f"the spec has no container {call.container}"
        created = Container(
            id=self._id("c"),
            name=call.container,
            attempt=call.attempt,
            sandbox_id=call.sandbox_id,
            state=ContainerState.CREATED,
            created_at=self.ids,
            restart_count=call.attempt,
            spec_hash=container_hash(found[1]),
            image="busybox:1",
        )
        mine.append(created)
        self.resources[created.id] = container_resources(self.core.records[call.uid].saved.pod, found[1], NODE)
        self.made.append((call.uid, call.container, call.attempt))
        return created.id

    def _resize(self, call: ResizePod, done: CallDone) -> CallDone:
        """The process may end after each write."""
        pod = self.core.records[call.uid].saved.pod
        for write in resize_model.writes(call, pod, self.cgroups[call.uid], self.usage):
            self.writes.append(resize_model.perform(write, call, self.cgroups, self.resources))
            self._point()
        return done

    def _change(self, uid: str, container_id: str, state: ContainerState) -> None:
        for i, c in enumerate(self.containers[uid]):
            if c.id == container_id and c.state is not ContainerState.EXITED:
                at = int(self.wall * 1e9)
                began, ended = (at, 0) if state is ContainerState.RUNNING else (c.started_at, at)
                self.containers[uid][i] = replace(c, state=state, started_at=began, finished_at=ended)

    def _id(self, kind: str) -> str:
        self.ids += 1
        return f"{kind}{self.ids:03d}"
