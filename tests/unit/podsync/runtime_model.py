"""A tiny runtime for `play`: sandboxes, containers and cgroups by pod, and what each call of podsync changes in them.

Not a test of the runtime client: just enough of a runtime to let the core's decisions run to their end.
"""

from dataclasses import dataclass, field
from typing import Any

from bus.messages.device_plugins import AllocatedDevices
from services.podsync.core.cgroups.pod_cgroup import CgroupValues, pod_cgroup_values
from services.podsync.core.cgroups.pod_resources import actual_resources
from services.podsync.core.cri.container_resources import container_resources
from services.podsync.core.machine import PodSync
from services.podsync.core.pod import call_results
from services.podsync.core.pod.events import CallDone
from services.podsync.core.pod.instructions import (
    AllocatePodDevices,
    AskPreferredDevices,
    Call,
    ContainerStop,
    CreateContainer,
    DevicesOfContainer,
    EndTasks,
    FetchNode,
    InspectImage,
    KillContainer,
    KillPod,
    LookAtPod,
    PreparePod,
    PullImage,
    RemoveContainers,
    RemoveSandboxes,
    ResizePod,
    RunPodSandbox,
    RunPostStartHook,
    SetContainerCpus,
    StartContainer,
)
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from tests.unit.podsync import resize_model
from tests.unit.podsync.pods import Pod
from tests.unit.podsync.resize_model import NODE


class WriteRefusedError(Exception):
    """The kernel did not take a value of the pod's cgroup."""


@dataclass
class RuntimeModel:
    """The outside of one podsync process after another; `core` is the one that runs now."""

    images: set[str] = field(default_factory=lambda: {"busybox:1"})
    log_attempts: dict[str, int] = field(default_factory=dict)  # what PreparePod finds among the log files
    outside: set[str] = field(default_factory=set)  # pods whose cgroup is missing
    tasks_left: set[str] = field(default_factory=set)  # containers that end with a task that CRI does not know of
    ends_tasks: bool = True  # the runtime has a task service that can end those
    deaf: bool = False  # StopContainer and StopPodSandbox succeed and change nothing
    preferred: frozenset[str] = frozenset()  # the devices that the plugins prefer
    refuses_devices: str = ""  # error with which the plugins refuse to prepare devices
    prepared: list[tuple[str, DevicesOfContainer]] = field(default_factory=list)  # pod's UID, what a plugin prepared
    wall: float = 1_000_000.0
    sandboxes: dict[str, list[Sandbox]] = field(default_factory=dict)
    containers: dict[str, list[Container]] = field(default_factory=dict)
    node: Pod | None = None  # what FetchNode finds
    stops: list[int] = field(default_factory=list)
    stopped: list[ContainerStop] = field(default_factory=list)  # the same, complete
    hooks: list[str] = field(default_factory=list)  # instances whose postStart was run
    made: list[tuple[str, str, int]] = field(default_factory=list)  # every container ever created: uid, name, attempt
    cgroups: dict[str, CgroupValues] = field(default_factory=dict)  # pod's UID -> what its cgroup has
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)  # container id -> LinuxContainerResources
    usage: dict[str, int] = field(default_factory=dict)  # container id, or "" for the pod -> bytes of memory
    refused: str = ""  # begin of the writes that the kernel refuses, such as "pod cpu"
    writes: list[str] = field(default_factory=list)  # see `resize_model.perform`
    core: PodSync = field(init=False)
    ids: int = field(default=0, init=False)

    def point(self) -> None:
        """A place where the process may die."""

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

    def running(self, uid: str) -> list[tuple[str, int]]:
        """Name and attempt of every running container."""
        return [(c.name, c.attempt) for c in self.containers.get(uid, []) if c.state is ContainerState.RUNNING]

    def refusal(self, call: Call) -> tuple[str, str] | None:
        """Code and description of the error with which the runtime refuses the call; None = it does not."""
        if isinstance(call, AllocatePodDevices) and self.refuses_devices:
            return "", self.refuses_devices
        if isinstance(call, EndTasks) and not self.ends_tasks:
            return "Unimplemented", "unknown service containerd.services.tasks.v1.Tasks"
        ids = [c[0] for c in call.containers] if isinstance(call, RemoveContainers) else []
        if isinstance(call, RemoveSandboxes):
            ids = [c.id for c in self.containers.get(call.uid, []) if c.sandbox_id in call.sandboxes]
        left = [container_id for container_id in ids if container_id in self.tasks_left]
        return ("FailedPrecondition", f"cannot delete running task {left[0]}: failed precondition") if left else None

    def effect(self, call: Call) -> CallDone:
        """What the call changes, and its result."""
        self.wall += 0.01
        uid = call.uid
        done = CallDone(uid=uid, call=call, completed_at=self.wall)
        match call:
            case InspectImage(image=image):
                found = ImageStatus(id=f"sha256:{image}", size=1) if image in self.images else None
                return replace(done, result=call_results.ImageInspected(image=found))
            case PullImage(image=image):
                self.images.add(image)
                return replace(done, result=call_results.ImagePulled(image=ImageStatus(id=f"sha256:{image}", size=1)))
            case RunPodSandbox(attempt=attempt):
                assert all(s.attempt != attempt for s in self.sandboxes.get(uid, [])), "sandbox name is reserved"
                sandbox = Sandbox(
                    id=self._id("s"),
                    attempt=attempt,
                    state=SandboxState.READY,
                    created_at=self.ids,
                    host_network=self.core.tracked[uid].host_network,
                    ips=("10.0.0.9",),
                )
                self.sandboxes.setdefault(uid, []).append(sandbox)
            case CreateContainer():
                made = self._create(call)
                cpus = self.resources[made].get("cpuset_cpus", "")
                return replace(done, result=call_results.ContainerCreated(container_id=made, cpus=cpus))
            case SetContainerCpus(container_id=container_id, cpus=cpus):
                self.resources[container_id] = {**self.resources[container_id], "cpuset_cpus": cpus}
                return done
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
                    return replace(done, result=call_results.PodListed(pod=self.look(uid)))
                for stop in containers:
                    self._change(uid, stop.container_id, ContainerState.EXITED)
                self.sandboxes[uid] = [
                    replace(s, state=SandboxState.NOTREADY) if s.id in call.sandboxes else s
                    for s in self.sandboxes.get(uid, [])
                ]
                ids = {stop.container_id for stop in containers}
                ended = tuple(c for c in self.containers.get(uid, []) if c.id in ids)
                return replace(done, result=call_results.PartListed(containers=ended))
            case RemoveContainers(containers=containers):
                gone = {c[0] for c in containers}
                self.containers[uid] = [c for c in self.containers[uid] if c.id not in gone]
            case EndTasks(ids=ids):
                self.tasks_left -= set(ids)
            case RemoveSandboxes(sandboxes=sandboxes):
                self.sandboxes[uid] = [s for s in self.sandboxes[uid] if s.id not in sandboxes]
            case FetchNode():
                return replace(done, result=call_results.NodeRead(node=self.node))
            case ResizePod():
                return self._resize(call, done)
            case AskPreferredDevices(question=question):
                preferred = self.preferred.intersection(question.available)
                return replace(done, result=call_results.DevicesPreferred(ids=preferred))
            case AllocatePodDevices(wanted=wanted):
                self.prepared += [(uid, each) for each in wanted]
                setups = tuple(AllocatedDevices(envs={"IDS": ",".join(each.ids)}) for each in wanted)
                return replace(done, result=call_results.DevicesAllocated(setups=setups))
            case PreparePod(runs=runs):
                if not runs:
                    self.outside.discard(uid)
                    self.cgroups.setdefault(uid, pod_cgroup_values(self.core.tracked[uid].saved.pod, NODE))
                missing = uid in self.outside
                return replace(
                    done, result=call_results.PodPrepared(log_attempts=self.log_attempts, cgroup_missing=missing)
                )
            case LookAtPod(namesakes=namesakes):
                others = (
                    [other for other in self.sandboxes if other != uid and self.sandboxes[other]] if namesakes else ()
                )
                read = self._actual_resources(uid) if call.resources else None
                listed = call_results.PodListed(pod=self.look(uid), cgroup_missing=uid in self.outside, resources=read)
                return replace(done, result=replace(listed, namesakes=tuple(map(self.look, others))))
        return replace(done, result=call_results.PodListed(pod=self.look(uid)))

    def _create(self, call: CreateContainer) -> str:
        mine = self.containers.setdefault(call.uid, [])
        taken = [
            c for c in mine if (c.name, c.attempt, c.sandbox_id) == (call.container, call.attempt, call.sandbox_id)
        ]
        assert not taken, f"a second container of attempt {call.attempt}"
        found = self.core.tracked[call.uid].container(call.container)
        assert found is not None, f"the spec has no container {call.container}"
        created = Container(
            id=self._id("c"),
            name=call.container,
            attempt=call.attempt,
            sandbox_id=call.sandbox_id,
            state=ContainerState.CREATED,
            created_at=self.ids,
            restart_count=call.attempt,
            spec_hash=call.spec_hash,
            image="busybox:1",
        )
        mine.append(created)
        saved = self.core.tracked[call.uid].saved
        facts = replace(NODE, placement=saved.placement, shared_cpus=self.core.shared_cpus())
        self.resources[created.id] = container_resources(saved.pod, found[1], facts)
        self.made.append((call.uid, call.container, call.attempt))
        return created.id

    def _resize(self, call: ResizePod, done: CallDone) -> CallDone:
        """The process may end after each write."""
        pod = self.core.tracked[call.uid].saved.pod
        for write in resize_model.writes(call, pod, self.cgroups[call.uid], self.usage):
            before = dict(self.cgroups)
            written = resize_model.perform(write, call, self.cgroups, self.resources)
            if self.refused and written.startswith(self.refused):
                self.cgroups = before
                raise WriteRefusedError(f"{written}: invalid argument")
            self.writes.append(written)
            self.point()
        return replace(done, result=call_results.PodResized(resources=self._actual_resources(call.uid)))

    def _actual_resources(self, uid: str) -> dict[str, Any] | None:
        if uid not in self.cgroups:
            return None
        tracked = self.core.tracked[uid]
        shown = tracked.status.get("resources") or {}
        return actual_resources(tracked.saved.pod, self.cgroups[uid], NODE, shown)

    def _change(self, uid: str, container_id: str, state: ContainerState) -> None:
        for i, c in enumerate(self.containers[uid]):
            if c.id == container_id and c.state is not ContainerState.EXITED:
                at = int(self.wall * 1e9)
                began, ended = (at, 0) if state is ContainerState.RUNNING else (c.started_at, at)
                self.containers[uid][i] = replace(c, state=state, started_at=began, finished_at=ended)

    def _id(self, kind: str) -> str:
        self.ids += 1
        return f"{kind}{self.ids:03d}"
