"""Names what is done about a pod whose device becomes unhealthy: by the node's configuration, or by the pod."""

from enum import StrEnum

DEVICE_ACTION_ANNOTATION = "bulkhead/device-unhealthy-action"  # of a pod; it overrides the node's action


class DeviceAction(StrEnum):
    """Names what is done when the plugin of a device that a container has reports it as unhealthy."""

    NONE = "None"  # an event and the pod's status show it, as with the kubelet
    RESTART_CONTAINER = "RestartContainer"
    FAIL_POD = "FailPod"  # its owner, such as a Job or a ReplicaSet, replaces it
