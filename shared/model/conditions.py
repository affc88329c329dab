"""The types of the pod and node conditions that a kubelet writes (pods.md 9.4, node.md 1.7). Data only."""

POD_SCHEDULED = "PodScheduled"
DISRUPTION_TARGET = "DisruptionTarget"  # shared: controllers write it as well
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
