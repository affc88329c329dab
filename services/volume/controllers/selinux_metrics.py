"""Shows how many SELinux labels of volumes contradict each other now, under the kubelet's names (volumes.md 12.5)."""

from collections.abc import Callable, Iterable

from services.volume.core.world.desired_state_of_world import DesiredVolumes
from services.volume.core.world.selinux_uses import count_selinux_uses
from shared.metrics.family import gauge
from shared.metrics.registry import Registry

_OF_VOLUME = ("volume_plugin", "access_mode")
ADMITTED = gauge(
    "volume_manager_selinux_volumes_admitted_total", "Volumes that pods use with an SELinux label.", *_OF_VOLUME
)
CONTAINER_ERRORS = gauge(
    "volume_manager_selinux_container_errors_total",
    "Containers with SELinux options of which no label for their volume can be made.",
    "access_mode",
)
CONTAINER_WARNINGS = gauge(
    "volume_manager_selinux_container_warnings_total",
    "Containers with SELinux options of which no label can be made, an error with feature gate SELinuxMount.",
    "access_mode",
)
POD_ERRORS = gauge(
    "volume_manager_selinux_pod_context_mismatch_errors_total",
    "Volumes that are not mounted because containers of the pod have several SELinux labels.",
    "access_mode",
)
POD_WARNINGS = gauge(
    "volume_manager_selinux_pod_context_mismatch_warnings_total",
    "Volumes whose containers in the pod have several SELinux labels, an error with feature gate SELinuxMount.",
    "access_mode",
)
VOLUME_ERRORS = gauge(
    "volume_manager_selinux_volume_context_mismatch_errors_total",
    "SELinux labels of pods for which a volume cannot be mounted, because it has another one.",
    *_OF_VOLUME,
)
VOLUME_WARNINGS = gauge(
    "volume_manager_selinux_volume_context_mismatch_warnings_total",
    "SELinux labels of pods beside the first one of their volume, an error with feature gate SELinuxMount.",
    *_OF_VOLUME,
)


class SELinuxMetrics:
    """Counts when metrics are collected. `pods` returns the pods whose volumes are desired."""

    def __init__(self, metrics: Registry, pods: Callable[[], Iterable[DesiredVolumes]]) -> None:
        self._pods, self._admitted = pods, metrics.gauge(ADMITTED)
        self._of_containers = {True: metrics.gauge(CONTAINER_ERRORS), False: metrics.gauge(CONTAINER_WARNINGS)}
        self._of_pods = {True: metrics.gauge(POD_ERRORS), False: metrics.gauge(POD_WARNINGS)}
        self._of_volumes = {True: metrics.gauge(VOLUME_ERRORS), False: metrics.gauge(VOLUME_WARNINGS)}
        metrics.before_collecting(self._count)

    def _count(self) -> None:
        for shown in (self._of_containers, self._of_pods, self._of_volumes):
            for family in shown.values():
                family.clear()
        self._admitted.clear()
        counts = count_selinux_uses(self._pods())
        for labels, number in counts.admitted.items():
            self._admitted.set(number, *labels)
        for (enforced, mode), number in counts.unlabelled.items():
            self._of_containers[enforced].set(number, mode)
        for (enforced, mode), number in counts.pod_mismatches.items():
            self._of_pods[enforced].set(number, mode)
        for (enforced, plugin, mode), number in counts.volume_mismatches.items():
            self._of_volumes[enforced].set(number, plugin, mode)
