"""Counts volumes by plugin and certificates by signer, and measures operations on volumes and calls of drivers, under
the kubelet's names (node.md 9.3)."""

from collections import Counter
from collections.abc import Callable, Mapping

from services.volume.core.operations.operations import (
    ExpandVolume,
    MountVolume,
    Operation,
    UnmountDevice,
    UnmountVolume,
)
from services.volume.core.operations.outcome import DriverCall, Outcome
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.volume_spec import VolumeSpec
from shared.metrics.family import gauge, histogram
from shared.metrics.registry import Registry

_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0)

OPERATIONS = histogram(
    "storage_operation_duration_seconds",
    "Duration of an operation on a volume.",
    "volume_plugin",
    "operation_name",
    "status",
    "migrated",
    buckets=_BUCKETS,
)
DRIVER_CALLS = histogram(
    "csi_operations_seconds",
    "Duration of a call of a CSI driver for a volume.",
    "driver_name",
    "method_name",
    "grpc_status_code",
    "migrated",
    buckets=_BUCKETS,
)
TOTAL = gauge("volume_manager_total_volumes", "Volumes of pods, desired and actual.", "plugin_name", "state")
CERTIFICATES = gauge(
    "kubelet_podcertificate_states",
    "Certificates of pods in projected volumes, by signer and state.",
    "signer_name",
    "state",
    limit=200,
)

_NAMES = {
    MountVolume: "volume_mount",
    ExpandVolume: "expand_volume",
    UnmountVolume: "volume_unmount",
    UnmountDevice: "unmount_device",
}


class VolumeMetrics:
    """The metrics of volumes. `certificates` returns (signer, state) -> number of projections."""

    def __init__(
        self,
        metrics: Registry,
        reconciler: Reconciler,
        certificates: Callable[[], Mapping[tuple[str, str], int]] = dict,
    ) -> None:
        self._reconciler, self._states = reconciler, certificates
        self._operations, self._total = metrics.histogram(OPERATIONS), metrics.gauge(TOTAL)
        self._driver_calls = metrics.histogram(DRIVER_CALLS)
        self._certificates = metrics.gauge(CERTIFICATES)
        metrics.before_collecting(self._count_volumes)
        metrics.before_collecting(self._count_certificates)

    def ended(self, operation: Operation, outcome: Outcome, seconds: float) -> None:
        """Observe the end of an operation, before the reconciler has it. Directories of pods are no volumes, and the
        mount of a device is part of that of its volume."""
        name = _NAMES.get(type(operation))
        plugin = self._plugin(operation)
        if name and plugin:
            status = "fail-unknown" if outcome.error else "success"
            self._operations.observe(seconds, plugin, name, status, "true" if self._is_migrated(operation) else "false")

    def driver_called(self, call: DriverCall) -> None:
        """Observe a call of a CSI driver that has ended."""
        self._driver_calls.observe(call.seconds, call.driver, call.method, call.code, "false")

    def _plugin(self, operation: Operation) -> str:
        match operation:
            case MountVolume(spec=spec) | ExpandVolume(spec=spec):
                return spec.plugin
            case UnmountDevice(plugin=plugin):
                return plugin
            case UnmountVolume(uid=uid, volume=volume):
                actual = self._reconciler.actual.get(uid, volume)
                return actual.plugin if actual is not None else ""
        return ""

    def _is_migrated(self, operation: Operation) -> bool:
        """Return whether the volume was translated from an in-tree plugin; False for one that was found at start."""
        match operation:
            case MountVolume(spec=spec) | ExpandVolume(spec=spec):
                return spec.migrated
            case UnmountVolume(uid=uid, volume=volume):
                actual = self._reconciler.actual.get(uid, volume)
                return actual is not None and actual.spec is not None and actual.spec.migrated
        return False

    def _count_volumes(self) -> None:
        desired = Counter(
            spec.plugin
            for pod in self._reconciler.desired.pods.values()
            for spec in pod.mounts.values()
            if isinstance(spec, VolumeSpec)
        )
        actual = Counter(volume.plugin for _, _, volume in self._reconciler.actual.every() if volume.plugin)
        self._total.clear()
        for state, volumes in (("desired_state_of_world", desired), ("actual_state_of_world", actual)):
            for plugin, count in volumes.items():
                self._total.set(count, plugin, state)

    def _count_certificates(self) -> None:
        self._certificates.clear()
        for (signer, state), count in self._states().items():
            self._certificates.set(count, signer, state)
