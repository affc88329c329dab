"""Counts and times tries of probes, for `/metrics/probes` (node.md 9.5). The series of a worker end with it."""

from services.pleg.core.probe_set import WorkerKey
from services.pleg.core.probe_worker import Verdict
from shared.metrics.family import PROBES, counter, gauge, histogram
from shared.metrics.registry import Registry
from shared.process.identity import started_at

MAX_SERIES = 5000  # of one metric
TOTAL = counter(
    "prober_probe_total",
    "Tries of probes by result.",
    "probe_type",
    "result",
    "container",
    "pod",
    "namespace",
    "pod_uid",
    path=PROBES,
    limit=MAX_SERIES,
)
DURATION = histogram(
    "prober_probe_duration_seconds",
    "Duration of a try that did not fail.",
    "probe_type",
    "container",
    "pod",
    "namespace",
    path=PROBES,
    limit=MAX_SERIES,
)
# The series of this path begin again with this process; those of /metrics have the start of the oldest process.
STARTED = gauge("process_start_time_seconds", "Start of the oldest process.", path=PROBES)
_RESULTS = {
    Verdict.SUCCESS: "successful",
    Verdict.WARNING: "successful",
    Verdict.FAILURE: "failed",
    Verdict.ERROR: "unknown",
}


class ProbeMetrics:
    """Counts and times tries."""

    def __init__(self, metrics: Registry) -> None:
        self._total, self._duration = metrics.counter(TOTAL), metrics.histogram(DURATION)
        if started := started_at("self"):
            metrics.gauge(STARTED).set(started)
        self._tried: dict[WorkerKey, tuple[str, str, str, str]] = {}  # the labels of a worker's durations

    def tried(self, key: WorkerKey, namespace: str, pod: str, verdict: Verdict, seconds: float) -> None:
        """Count a try of this worker that has ended."""
        labels = self._tried[key] = (key.kind.label, key.container, pod, namespace)
        self._total.inc(labels[0], _RESULTS[verdict], *labels[1:], key.pod_uid)
        if verdict is not Verdict.FAILURE:
            self._duration.observe(seconds, *labels)

    def ended(self, key: WorkerKey) -> None:
        """Remove the series of a worker that has ended."""
        labels = self._tried.pop(key, None)
        if labels is not None:
            kind, container, uid = labels[0], key.container, key.pod_uid
            self._total.remove(lambda series: (series[0], series[2], series[5]) == (kind, container, uid))
            self._duration.remove(lambda series: series == labels)
