"""Decides which probes this node has, which instance each probes now, and the content of `probes.results`.
Takes the probes and statuses that podsync publishes and observations of the runtime; returns which workers changed. Has
no timers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from msgspec import Struct

from bus.messages.pleg import ProbeResults
from bus.messages.podsync import PodProbes
from services.pleg.core.probe_memory import ProbeMemory
from services.pleg.core.probe_spec import ProbeKind, probes_of
from services.pleg.core.probe_worker import Instance, ProbeWorker
from shared.model.frozen_copy import replace
from shared.model.probes import ProbeResult
from shared.model.runtime import Container, ContainerState, RuntimePod, SandboxState

MAX_FAILURE_CHARACTERS = 512  # of a failed try's output in the results
SETTLED_SECONDS = 10.0  # after so long, a container that ran before our start is first probed at a random moment


class WorkerKey(NamedTuple):
    """Identifies one worker, as long as its pod is probed."""

    pod_uid: str
    container: str
    kind: ProbeKind


class Moment(Struct, frozen=True):
    """Has one moment on both clocks, in seconds; `wall` is only for the age of the runtime's timestamps."""

    monotonic: float
    wall: float


class _Seen(Struct, frozen=True):
    """Has the start of an instance, computed once, so that a later change of the wall clock does not move it."""

    started_at: float
    found_running: bool


@dataclass
class _Pod:
    uid: str
    probes: PodProbes | None = None
    status: dict[str, Any] = field(default_factory=dict)
    observation: RuntimePod | None = None
    seen: dict[str, _Seen] = field(default_factory=dict)  # container id -> its start
    made: bool = False  # whether the workers were made, which happens once
    workers: dict[WorkerKey, ProbeWorker] = field(default_factory=dict)


class ProbeSet:
    """Has the probes of all pods. `results`: the content of the stream, by container id; `gates`: those of
    PROBE_GATES that are on."""

    def __init__(
        self, handed_over: Mapping[str, Sequence[ProbeMemory]] | None = None, gates: frozenset[str] = frozenset()
    ) -> None:
        self._gates = gates
        self._handed_over = dict(handed_over or {})  # pod UID -> what an earlier process counted
        self._pods: dict[str, _Pod] = {}
        self._listed = False
        self.results: dict[str, ProbeResults] = {}

    def worker(self, key: WorkerKey) -> ProbeWorker | None:
        """Return the worker, None where its probe has ended."""
        pod = self._pods.get(key.pod_uid)
        return pod.workers.get(key) if pod else None

    def results_of(self, uid: str) -> list[tuple[str, ProbeResults]]:
        """Return the results of the pod's containers: (container id, results)."""
        pod = self._pods.get(uid)
        containers = pod.observation.containers if pod and pod.observation else ()
        return [(c.id, self.results[c.id]) for c in containers if c.id in self.results]

    def memories(self, uid: str) -> list[ProbeMemory]:
        """Return what the next process needs of the pod's probes."""
        pod = self._pods.get(uid)
        workers = pod.workers.values() if pod else ()
        known = [memory for worker in workers if (memory := worker.memory) is not None]
        return known + list(self._handed_over.get(uid, ()))

    def take_unused(self) -> list[str]:
        """Return, and forget, the pods with counts of an earlier process that the runtime has no more; called once,
        after the first full list."""
        gone = [uid for uid in self._handed_over if (pod := self._pods.get(uid)) is None or pod.observation is None]
        for uid in gone:
            del self._handed_over[uid]
        return gone

    @property
    def all_answered(self) -> bool:
        """Whether each worker has a first answer about the instance that ran before this process."""
        return self._listed and not any(
            seen.found_running and not worker.has_answered and (worker.probing or worker.due < inf)
            for pod in self._pods.values()
            for worker in pod.workers.values()
            if (seen := pod.seen.get(worker.container_id)) is not None
        )

    # -- inputs --------------------------------------------------------------------------------------------------

    def probed(self, uid: str, probes: PodProbes | None) -> set[WorkerKey]:
        """Take an update of `pods.probes`; None = deleted. Return the workers that were created or ended."""
        pod = self._pods.setdefault(uid, _Pod(uid))
        pod.probes = probes
        before = set(pod.workers)
        if probes is None:
            pod.workers.clear()
            pod.made = False  # a static pod may be listed again under its UID
        else:
            if not pod.made:
                pod.made = True
                memories = {(m.container, m.kind): m for m in self._handed_over.pop(uid, ())}
                for spec in probes_of({"spec": probes.spec}, self._gates):
                    key = WorkerKey(uid, spec.container, spec.kind)
                    own = memories.get((spec.container, spec.kind.value))
                    pod.workers[key] = ProbeWorker(spec, deletion_requested=probes.deletion_requested, handed_over=own)
            if probes.terminating:  # pods.md 8.1: readiness probes continue, and so do all probes of sidecars
                for key, worker in list(pod.workers.items()):
                    if key.kind is not ProbeKind.READINESS and not worker.spec.sidecar:
                        del pod.workers[key]
        self._forget_if_empty(pod)
        return before ^ set(pod.workers)

    def status(self, uid: str, status: dict[str, Any]) -> None:
        """Take the published status of the pod, {} = none."""
        pod = self._pods.setdefault(uid, _Pod(uid))
        pod.status = status
        self._forget_if_empty(pod)

    def observed(self, uid: str, observation: RuntimePod | None, now: Moment) -> list[str]:
        """Take an observation of the pod; None = the runtime has nothing of it. Return the container ids whose results
        were removed."""
        pod = self._pods.setdefault(uid, _Pod(uid))
        before, pod.observation = pod.observation, observation
        if observation is None:
            self._handed_over.pop(uid, None)
        containers = observation.containers if observation else ()
        for container in containers:
            if container.state is ContainerState.RUNNING and container.id not in pod.seen:
                pod.seen[container.id] = self._begin(container, before, now)
        ids = {container.id for container in containers}
        pod.seen = {entry: seen for entry, seen in pod.seen.items() if entry in ids}
        gone = [c.id for c in before.containers if c.id not in ids and c.id in self.results] if before else []
        for entry in gone:
            del self.results[entry]
        self._forget_if_empty(pod)
        return gone

    def listed(self) -> None:
        """Note that the first full list has shown everything that ran before this process."""
        self._listed = True

    # -- results -------------------------------------------------------------------------------------------------

    def update_pod(self, uid: str, now: float, delays: Iterator[float]) -> tuple[set[WorkerKey], set[WorkerKey]]:
        """Update the workers of the pod to its current state. Return all of them, and those whose try must be
        abandoned. `delays` has random parts of a period, in [0, 1), for first delays.
        """
        pod = self._pods.get(uid)
        if pod is None:
            return set(), set()
        abandoned = set()
        instances: dict[str, Instance | None] = {}
        for key, worker in pod.workers.items():
            if key.container not in instances:
                instances[key.container] = self._instance(pod, key.container, worker.spec.sidecar)
            instance = instances[key.container]
            if instance is not None and instance.found_running and now - instance.started_at >= SETTLED_SECONDS:
                instance = replace(instance, first_delay=next(delays))
            if worker.observed(instance, now):
                abandoned.add(key)
            if instance is not None:
                self._note(key, worker)
        return set(pod.workers), abandoned

    def failed(self, key: WorkerKey, container_id: str, output: str) -> None:
        """Add the output of the last try to a result that has changed to a failure."""
        before = self.results.get(container_id) or ProbeResults(pod_uid=key.pod_uid, container=key.container)
        self.results[container_id] = replace(before, failure=output[:MAX_FAILURE_CHARACTERS])

    def _note(self, key: WorkerKey, worker: ProbeWorker) -> None:
        """Copy the worker's result to `results`."""
        before = self.results.get(worker.container_id)
        if before is not None or worker.result:
            before = before or ProbeResults(pod_uid=key.pod_uid, container=key.container)
            if getattr(before, key.kind.value) != worker.result or worker.container_id not in self.results:
                kind: dict[str, Any] = {key.kind.value: worker.result}
                self.results[worker.container_id] = replace(before, **kind)

    def address(self, uid: str) -> str:
        """Return the pod's IP: that of the status where the sandbox has it, or with hostNetwork, else the sandbox's
        first one; "" = not known."""
        pod = self._pods.get(uid)
        if pod is None or pod.observation is None:
            return ""
        shown = str(pod.status.get("podIP") or "")
        sandbox = next((s for s in pod.observation.sandboxes if s.state is SandboxState.READY), None)
        if sandbox is None or sandbox.host_network:
            return shown or ("127.0.0.1" if sandbox else "")
        return shown if shown in sandbox.ips else next(iter(sandbox.ips), "")

    def pod_reference(self, uid: str) -> tuple[str, str]:
        """Return namespace and name of the pod."""
        pod = self._pods.get(uid)
        if pod is None or pod.probes is None:
            return "", ""
        return pod.probes.namespace, pod.probes.name

    def _begin(self, container: Container, before: RuntimePod | None, now: Moment) -> _Seen:
        """Return the start of an instance that is observed running for the first time. An instance that an earlier
        observation did not have began after that observation, whatever the wall clock shows; a negative age means that
        the clock was set back."""
        age = max(0.0, now.wall - container.started_at / 1e9)
        if self._listed and before is not None and before.observed_at <= now.monotonic:
            age = min(age, now.monotonic - before.observed_at)
        return _Seen(now.monotonic - age, found_running=not self._listed)

    def _instance(self, pod: _Pod, container: str, sidecar: bool) -> Instance | None:
        """Return the instance that the status names, if the runtime shows it; else None."""
        listed = pod.status.get("initContainerStatuses" if sidecar else "containerStatuses")
        status = next((s for s in _dicts(listed) if s.get("name") == container), None)
        named = str((status or {}).get("containerID") or "").rpartition("//")[2]
        containers = pod.observation.containers if pod.observation else ()
        shown = next((c for c in containers if c.id == named), None)
        if status is None or shown is None or shown.state is ContainerState.CREATED:
            return None
        seen = pod.seen.get(shown.id)
        return Instance(
            id=shown.id,
            running=shown.state is ContainerState.RUNNING,
            exited=shown.state is ContainerState.EXITED,
            started=bool(status.get("started")) or self._startup_succeeded(pod, container, shown.id),
            started_at=seen.started_at if seen else 0.0,
            found_running=seen.found_running if seen else False,
        )

    @staticmethod
    def _startup_succeeded(pod: _Pod, container: str, container_id: str) -> bool:
        """Return whether the startup probe of the instance has succeeded, so that liveness and readiness need not wait
        until the status shows it."""
        worker = pod.workers.get(WorkerKey(pod.uid, container, ProbeKind.STARTUP))
        return worker is not None and worker.container_id == container_id and worker.result is ProbeResult.SUCCESS

    def _forget_if_empty(self, pod: _Pod) -> None:
        if pod.probes is None and not pod.status and pod.observation is None:
            self._pods.pop(pod.uid, None)


def _dicts(value: object) -> Iterable[dict[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()
