"""Measures the time from the creation of pods until the API server shows that they run: the SLI of pod startup (pods.md
D).
Measures only pods that this process saw before the API server had their status.startTime. The time of pulls by an
earlier process is not subtracted.
"""

from collections import deque
from collections.abc import Callable, Iterable

from bus.interface import Bus, Change, Deleted, Put
from bus.messages.sources import ApiPodStatus
from bus.messages.streams import PODS_API_STATUS
from services.podsync.core.pod.startup_duration import Interval, covered, has_started, init_runs, is_stateful
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.metrics.family import gauge, histogram
from shared.metrics.registry import Registry
from shared.time.clock import Clock
from shared.time.timestamps import parse_rfc3339

# Upper bounds, seconds.
_MINUTES = (60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
START_BUCKETS = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, *_MINUTES)
MAX_PULLS = 100  # whose times are kept for a pod: the newest

TOTAL = histogram(
    "kubelet_pod_start_total_duration_seconds",
    "Time from the creation of a pod until the API server shows all its containers running.",
    buckets=START_BUCKETS,
)
SLI = histogram(
    "kubelet_pod_start_sli_duration_seconds",
    "Time from the creation of a pod without lasting volumes until the API server shows it running, without "
    "image pulls and init containers.",
    buckets=START_BUCKETS,
)
FIRST = gauge(
    "kubelet_first_network_pod_start_sli_duration_seconds",
    "kubelet_pod_start_sli_duration_seconds of the first pod with a network of its own.",
)


class PodStartMetrics:
    """Times the pods that have not started. `pod_of` returns the tracked pod of a UID."""

    def __init__(self, metrics: Registry, clock: Clock, bus: Bus, pod_of: Callable[[str], TrackedPod | None]) -> None:
        self._clock, self._pod_of = clock, pod_of
        self._total, self._sli = metrics.histogram(TOTAL), metrics.histogram(SLI)
        self._first, self._first_seen = metrics.gauge(FIRST), False
        self._pulls: dict[str, deque[Interval]] = {}  # by UID
        bus.follow(PODS_API_STATUS, self._on_api_status)

    def pulled(self, uid: str, seconds: float) -> None:
        """Count a pull for the pod that took `seconds` and has ended now."""
        if (pulls := self._pulls.get(uid)) is not None:
            now = self._clock.wall()
            pulls.append((now - seconds, now))

    def _on_api_status(self, change: Change[ApiPodStatus]) -> None:
        match change:
            case Deleted(uid):
                self._pulls.pop(uid, None)
            case Put(uid, known) if uid not in self._pulls:
                if not known.status.get("startTime"):
                    self._pulls[uid] = deque(maxlen=MAX_PULLS)
            case Put(uid, known) if has_started(known.status):
                self._measure(uid, self._pulls.pop(uid))
            case Put(uid, known) if known.status.get("phase") in ("Succeeded", "Failed"):
                del self._pulls[uid]

    def _measure(self, uid: str, pulls: Iterable[Interval]) -> None:
        tracked = self._pod_of(uid)
        metadata = {} if tracked is None else tracked.saved.pod.get("metadata") or {}
        created = parse_rfc3339(metadata.get("creationTimestamp") or "")
        if tracked is None or created is None:
            return
        total = max(0.0, self._clock.wall() - created)  # the clock of the API server may be ahead of ours
        self._total.observe(total)
        if is_stateful(tracked.saved.pod):
            return
        sli = max(0.0, total - covered([*pulls, *init_runs(tracked.saved.pod, tracked.instances)]))
        self._sli.observe(sli)
        if not tracked.host_network and not self._first_seen:
            self._first_seen = True
            self._first.set(sli)
