"""Counts requested, waiting, refused and completed resizes under the kubelet's names (node.md 9.1).
Gets each event with its pod as it was before, each status and each call, and changes nothing.
"""

from collections import Counter

from msgspec import Struct

from services.podsync.core.pod.allocation import DEFERRED, INFEASIBLE, RESIZE_IN_PROGRESS, RESIZE_PENDING, allocation_of
from services.podsync.core.pod.events import CallDone, Event, PodDesired, PodUndesired
from services.podsync.core.pod.instructions import KillPod, ResizePod
from services.podsync.core.pod.metric_labels import infeasible, resize_operations
from services.podsync.core.pod.tracked_pod import Status, TrackedPod
from shared.metrics.family import counter, gauge, histogram
from shared.metrics.registry import Registry

_MILLISECONDS = (10, 50, 100, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000)

REQUESTED = counter(
    "kubelet_container_requested_resizes_total",
    "Changes of resources that the API server lists for containers.",
    *("resource", "requirement", "operation"),
)
DURATION = histogram(
    "kubelet_pod_resize_duration_milliseconds",
    "Time to write the resources of a pod to its cgroup and containers.",
    "success",
    buckets=_MILLISECONDS,
)
PENDING = gauge("kubelet_pod_pending_resizes", "Pods whose resize is deferred or infeasible.", "reason")
REFUSED = counter("kubelet_pod_infeasible_resizes_total", "Resizes that were infeasible.", "reason_detail")
IN_PROGRESS = gauge("kubelet_pod_in_progress_resizes", "Pods whose resize is in progress.")
ACCEPTED = counter(
    "kubelet_pod_deferred_accepted_resizes_total", "Deferred resizes that were accepted later.", "retry_trigger"
)


class _Shown(Struct, frozen=True):
    """Has what the newest status of a pod shows of its resize. `generation`: that of the pod with the resize, 0 =
    none."""

    reason: str = ""
    generation: int = 0
    in_progress: bool = False


class ResizeMetrics:
    """Counts resizes, with the newest state of each pod's resize."""

    def __init__(self, metrics: Registry) -> None:
        self._pods: dict[str, _Shown] = {}
        self._trigger = ""
        self._requested = metrics.counter(REQUESTED)
        self._duration = metrics.histogram(DURATION)
        self._pending = metrics.gauge(PENDING)
        self._in_progress = metrics.gauge(IN_PROGRESS)
        self._refused = metrics.counter(REFUSED)
        self._accepted = metrics.counter(ACCEPTED)
        metrics.before_collecting(self._count_pods)

    def happened(self, event: Event, tracked: TrackedPod | None) -> None:
        """Count an event that the core gets next; `tracked`: its pod before the event, None = none."""
        self._trigger = _trigger(event, tracked)
        if isinstance(event, PodDesired) and tracked is not None and tracked.saved.allocation is not None:
            pending = tracked.saved.pending_resize
            before = tracked.saved.allocation if pending is None else pending.wanted
            for labels in resize_operations(before, allocation_of(event.pod)):
                self._requested.inc(*labels)

    def shown(self, uid: str, status: Status) -> None:
        """Count what a new status of the pod shows. The earlier process has counted what the first status shows."""
        conditions = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
        pending = conditions.get(RESIZE_PENDING, {})
        now = _Shown(
            reason=pending.get("reason", ""),
            generation=int(pending.get("observedGeneration") or 0),
            in_progress=RESIZE_IN_PROGRESS in conditions,
        )
        before = self._pods.get(uid)
        self._pods[uid] = now
        if before is None:
            return
        if now.reason == INFEASIBLE and (before.reason, before.generation) != (now.reason, now.generation):
            self._refused.inc(infeasible(pending.get("message", "")))
        if before.reason == DEFERRED and not now.reason and now.in_progress:
            self._accepted.inc(self._trigger)

    def called(self, seconds: float, *, success: bool) -> None:
        """Count a ResizePod call that took `seconds`."""
        self._duration.observe(seconds * 1000, "true" if success else "false")

    def forget(self, uid: str) -> None:
        """Drop the state of a pod that is gone."""
        self._pods.pop(uid, None)

    def _count_pods(self) -> None:
        counted = Counter(shown.reason for shown in self._pods.values())
        for reason in (DEFERRED, INFEASIBLE):
            self._pending.set(counted[reason], reason.lower())
        self._in_progress.set(sum(shown.in_progress for shown in self._pods.values()))


def _trigger(event: Event, tracked: TrackedPod | None) -> str:
    """Return the kubelet's name for why deferred resizes are decided again. `periodic_retry` also stands for what the
    kubelet notices only at its periodic retry, such as the end of a pressure."""
    match event:
        case PodDesired():
            return "pods_added" if tracked is None else "pod_updated"
        case PodUndesired():
            return "pods_removed"
        case CallDone(call=KillPod()):
            return "pod_terminated"
        case CallDone(call=ResizePod()):
            return "pod_resized"
    return "periodic_retry"
