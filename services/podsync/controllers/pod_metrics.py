"""Counts work, starts, failures and rejections of pods under the kubelet's names (node.md 9.1).
Gets each event, instruction and call, and changes nothing. `resize_metrics` counts resizes.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from bus.messages.event import KubeEvent
from bus.messages.podsync import PodState
from services.podsync.controllers.pod_start_metrics import START_BUCKETS, PodStartMetrics
from services.podsync.controllers.resize_metrics import ResizeMetrics
from services.podsync.core.pod.call_results import ImagePulled
from services.podsync.core.pod.events import CallDone, CallFailed, Event
from services.podsync.core.pod.instructions import (
    Call,
    CreateContainer,
    ForgetPod,
    Instruction,
    PublishAdmitted,
    PublishStatus,
    PullImage,
    ResizePod,
    RunPodSandbox,
    SavePod,
    StartContainer,
)
from services.podsync.core.pod.lifecycle import ATTACH_LIMIT, PREEMPTING
from services.podsync.core.pod.metric_labels import container_type, image_size, preemption, rejection
from shared.metrics.family import counter, gauge, histogram
from shared.metrics.registry import Registry
from shared.model.objects import Object
from shared.time.clock import Clock

_PULL = (1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)

WORK = histogram(
    "kubelet_pod_worker_duration_seconds",
    "Time from the first instruction for a pod until none waits and no call is under way.",
    "operation_type",
)
WORK_BEGAN = histogram(
    "kubelet_pod_worker_start_duration_seconds", "Time from the first event of a pod to its first call."
)
POD_START = histogram(
    "kubelet_pod_start_duration_seconds", "Time from the first event of a pod until it runs.", buckets=START_BUCKETS
)
PODS_STARTED = counter("kubelet_started_pods_total", "Sandboxes that were begun.")
PODS_FAILED = counter("kubelet_started_pods_errors_total", "Sandboxes that could not be made.")
STARTED = counter("kubelet_started_containers_total", "Containers that were begun.", "container_type")
FAILED = counter(
    "kubelet_started_containers_errors_total", "Containers that could not be started.", "container_type", "code"
)
PULLED = histogram(
    "kubelet_image_pull_duration_seconds",
    "Duration of an image pull that succeeded.",
    "image_size_in_bytes",
    buckets=_PULL,
)
REJECTED = counter("kubelet_admission_rejections_total", "Pods that were rejected.", "reason")
PREEMPTED = counter("kubelet_preemptions", "Preempted pods by the first resource that was short.", "preemption_signal")
WORKING = gauge("kubelet_working_pods", "Pods that podsync works on.", "lifecycle", "config", "static")

_CODES = {PullImage: "ErrImagePull", CreateContainer: "CreateContainerError", StartContainer: "RunContainerError"}
_OPERATIONS = {PodState.TERMINATING: "kill", PodState.TERMINATED: "terminated", PodState.FINISHED: "terminated"}


@dataclass
class _Pod:
    seen: float  # seconds of CLOCK_MONOTONIC at its first instruction
    began: float | None = None  # seconds of CLOCK_MONOTONIC when the present work began
    called: bool = False  # whether a call was made for it
    settled: bool = False  # whether its first work has ended
    phase: str = ""
    state: PodState = PodState.SYNC
    source: str = ""
    rejected: bool = False
    admitted: bool = False
    short_of: str = ""  # the resource for which it is preempted


class PodMetrics:
    """Counts and times the pods' work."""

    def __init__(self, metrics: Registry, clock: Clock, starts: PodStartMetrics) -> None:
        self._clock, self._starts = clock, starts
        self.resizes = ResizeMetrics(metrics)
        self._pods: dict[str, _Pod] = {}
        self._work, self._work_began = metrics.histogram(WORK), metrics.histogram(WORK_BEGAN)
        self._pod_start, self._pulled = metrics.histogram(POD_START), metrics.histogram(PULLED)
        self._pods_started, self._pods_failed = metrics.counter(PODS_STARTED), metrics.counter(PODS_FAILED)
        self._started, self._failed = metrics.counter(STARTED), metrics.counter(FAILED)
        self._rejected, self._working = metrics.counter(REJECTED), metrics.gauge(WORKING)
        self._preempted = metrics.counter(PREEMPTED)
        self.on_verdict: Callable[[str], None] = lambda _uid: None  # called once for each pod with a verdict
        metrics.before_collecting(self._count_pods)

    def instructed(self, uid: str, instruction: Instruction) -> None:
        """Count an instruction that the pod's worker gets."""
        if isinstance(instruction, ForgetPod):
            self._pods.pop(uid, None)
            self.resizes.forget(uid)
            return
        now = self._clock.monotonic()
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = _Pod(now)
        if pod.began is None and not _is_delayed(instruction):
            pod.began = now
        match instruction:
            case PublishAdmitted(published=published):
                admitted = published.admitted
                if not pod.admitted:
                    self.on_verdict(uid)
                pod.state, pod.source, pod.admitted = admitted.state, admitted.source, True
                if admitted.rejected and not pod.rejected:
                    pod.rejected = True
                    self._rejected.inc(rejection(admitted.rejected))
            case SavePod(record=record) if record.get("ending"):
                pod.short_of = preemption(str(record["ending"].get("signal") or ""))
            case PublishStatus(status=status):
                phase = status.status.get("phase", "")
                if pod.phase == "Pending" and phase == "Running":
                    self._pod_start.observe(now - pod.seen)
                pod.phase = phase
                self.resizes.shown(uid, status.status)

    def recorded(self, uid: str, event: KubeEvent) -> None:
        """Count an Event of the pod, which is recorded after the pod's record was saved."""
        if event.reason == PREEMPTING:
            pod = self._pods.get(uid)
            self._preempted.inc(pod.short_of if pod is not None else "")
        elif event.reason == ATTACH_LIMIT:
            self._rejected.inc(rejection(ATTACH_LIMIT))

    def settled(self, uid: str) -> None:
        """Time the pod's work, which has ended: nothing waits for its worker, and no call is under way."""
        pod = self._pods.get(uid)
        if pod is not None and pod.began is not None:
            operation = _OPERATIONS.get(pod.state, "sync" if pod.settled else "create")
            self._work.observe(self._clock.monotonic() - pod.began, operation)
            pod.began, pod.settled = None, True

    def calling(self, call: Call) -> float:
        """Count the begin of a call, and return its time, seconds of CLOCK_MONOTONIC."""
        now = self._clock.monotonic()
        pod = self._pods.get(call.uid)
        if pod is not None and not pod.called:
            pod.called = True
            self._work_began.observe(now - pod.seen)
        return now

    def called(self, call: Call, pod: Object, outcome: Event, began: float) -> None:
        """Count a call of the pod and its outcome. `began`: what `calling` returned, in seconds."""
        failure = outcome if isinstance(outcome, CallFailed) else None
        if isinstance(call, PullImage):
            self._starts.pulled(call.uid, self._clock.monotonic() - began)
        match call:
            case RunPodSandbox():
                self._pods_started.inc()
                self._started.inc("pod_sandbox")
                if failure is not None:
                    self._pods_failed.inc()
                    self._failed.inc("pod_sandbox", failure.reason or "CreatePodSandboxError")
            case ResizePod():
                self.resizes.called(self._clock.monotonic() - began, success=failure is None)
            case CreateContainer(container=name) | StartContainer(container=name) | PullImage(container=name) if name:
                kind = container_type(pod, name)
                if isinstance(call, CreateContainer) or (isinstance(call, PullImage) and failure is not None):
                    self._started.inc(kind)
                if failure is not None:
                    self._failed.inc(kind, failure.reason or _CODES[type(call)])
        if isinstance(outcome, CallDone) and isinstance(outcome.result, ImagePulled):
            size = outcome.result.image.size if outcome.result.image is not None else None
            self._pulled.observe(self._clock.monotonic() - began, image_size(size))

    def _count_pods(self) -> None:
        counted = Counter(
            (pod.state.value, "desired" if pod.source else "runtime_only", _static(pod.source))
            for pod in self._pods.values()
            if pod.admitted and pod.state is not PodState.FINISHED
        )
        self._working.clear()
        for labels, count in counted.items():
            self._working.set(count, *labels)


def _is_delayed(instruction: Instruction) -> bool:
    """Return whether the instruction waits for what may follow, and is no work by itself."""
    match instruction:
        case SavePod(urgent=urgent):
            return not urgent
        case PublishStatus(on_the_way=on_the_way):
            return on_the_way
    return False


def _static(source: str) -> str:
    return {"": "unknown", "api": ""}.get(source, "true")
