"""Measures how full the volumes of claims are, and what the logs of containers take (node.md 9.3).

The usage is requested from pleg only while the node has a pod to run: a reading costs pleg CPU time."""

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.usage import FilesystemUsage, FoundUsage, GetUsage, PodUsage
from services.server.controllers.pod_streams import PodStreams
from shared.metrics.family import gauge
from shared.metrics.registry import Registry

TIMEOUT_SECONDS = 1.0  # that pleg has to answer
MAX_AGE_SECONDS = 60.0
MAX_CLAIMS = 2000  # claims whose series are shown
MAX_CONTAINERS = 5000  # containers whose series are shown

_LABELS = ("namespace", "persistentvolumeclaim")
CAPACITY = gauge("kubelet_volume_stats_capacity_bytes", "Size of the claim's volume.", *_LABELS, limit=MAX_CLAIMS)
AVAILABLE = gauge(
    "kubelet_volume_stats_available_bytes", "Free space of the claim's volume.", *_LABELS, limit=MAX_CLAIMS
)
USED = gauge("kubelet_volume_stats_used_bytes", "Used space of the claim's volume.", *_LABELS, limit=MAX_CLAIMS)
INODES = gauge("kubelet_volume_stats_inodes", "Inodes of the claim's volume.", *_LABELS, limit=MAX_CLAIMS)
INODES_FREE = gauge(
    "kubelet_volume_stats_inodes_free", "Free inodes of the claim's volume.", *_LABELS, limit=MAX_CLAIMS
)
INODES_USED = gauge(
    "kubelet_volume_stats_inodes_used", "Used inodes of the claim's volume.", *_LABELS, limit=MAX_CLAIMS
)

ABNORMAL = gauge(
    "kubelet_volume_stats_health_status_abnormal",
    "1 while the CSI driver reports that the claim's volume is damaged, 0 while it reports that it is not.",
    *_LABELS,
    limit=MAX_CLAIMS,
)

LOGS = gauge(
    "kubelet_container_log_filesystem_used_bytes",
    "Space that the log files of a running container take, rotated ones included.",
    "uid",
    "namespace",
    "pod",
    "container",
    limit=MAX_CONTAINERS,
)


class UsageMetrics:
    """Has the instruments. While pleg does not answer, they keep its last answer."""

    def __init__(self, metrics: Registry, bus: Bus, streams: PodStreams) -> None:
        self._bus, self._streams = bus, streams
        self._capacity, self._available = metrics.gauge(CAPACITY), metrics.gauge(AVAILABLE)
        self._used, self._inodes = metrics.gauge(USED), metrics.gauge(INODES)
        self._inodes_free, self._inodes_used = metrics.gauge(INODES_FREE), metrics.gauge(INODES_USED)
        self._abnormal, self._logs = metrics.gauge(ABNORMAL), metrics.gauge(LOGS)

    async def read(self) -> None:
        """Read the usage of claims and logs. Takes at most TIMEOUT_SECONDS."""
        pods: tuple[PodUsage, ...] = ()
        if self._streams.desired.state:
            try:
                reading = GetUsage(max_age_seconds=MAX_AGE_SECONDS)
                pods = (await self._bus.ask("pleg", reading, FoundUsage, TIMEOUT_SECONDS)).pods
            except (NoAnswerError, RequestRefusedError):
                return
        for each in (self._capacity, self._available, self._used, self._inodes, self._inodes_free, self._inodes_used):
            each.clear()
        self._abnormal.clear()
        self._logs.clear()
        for pod in pods:
            for container in pod.containers:
                if container.logs is not None and container.logs.used is not None:
                    self._logs.set(container.logs.used, pod.uid, pod.namespace, pod.name, container.name)
            for volume in pod.volumes:
                if volume.claim:
                    self._show(volume.filesystem, pod.namespace, volume.claim)
                if volume.claim and volume.abnormal is not None:
                    self._abnormal.set(float(volume.abnormal), pod.namespace, volume.claim)

    def _show(self, usage: FilesystemUsage, *labels: str) -> None:
        shown = (
            (self._capacity, usage.capacity),
            (self._available, usage.available),
            (self._used, usage.used),
            (self._inodes, usage.inodes),
            (self._inodes_free, usage.inodes_free),
            (self._inodes_used, usage.inodes_used),
        )
        for each, value in shown:
            if value is not None:
                each.set(value, *labels)
