"""The types of the pod and node conditions that a kubelet writes (pods.md 9.4, node.md 1.7)."""

from collections.abc import Mapping
from typing import Any

POD_SCHEDULED = "PodScheduled"
DISRUPTION_TARGET = "DisruptionTarget"  # shared: controllers write it as well
VOLUME_UNSUPPORTED = "VolumePluginNotSupported"  # reason of PodReadyToStartContainers: no attempt mounts a volume of it
# Of a pod that is stopped because the machine shuts down, and that starts again after the boot.
SHUTDOWN_REASON = "TerminationByKubelet"
SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."
# Only the kubelet writes these; every other condition of a pod belongs to another writer.
POD_CONDITIONS = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    POD_SCHEDULED,
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
)

PRESSURE_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure")  # in the order in which the Node lists them
NODE_CONDITIONS = (*PRESSURE_CONDITIONS, "Ready")


def is_of_shutdown(condition: Mapping[str, Any]) -> bool:
    """Return whether a pod's condition says that the node stopped the pod because the machine shuts down."""
    return condition.get("type") == DISRUPTION_TARGET and condition.get("message") == SHUTDOWN_MESSAGE
