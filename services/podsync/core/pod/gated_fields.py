"""Removes the fields of a pod's spec and status whose feature gates are off.
The pod then acts as if it did not have the field, as in the kubelet (pods.md 0.2). Admission rejects a pod whose field
may not be left out.
"""

from collections.abc import Collection, Mapping
from typing import Any

from shared.config.gate_releases import enabled
from shared.model.objects import Object
from shared.podspec.containers import every_container

RESTART_RULES = "ContainerRestartRules"
RESTART_ALL = "RestartAllContainersOnContainerExits"
ENV_FILES = "EnvFiles"
HOSTNAME = "HostnameOverride"
POD_LEVEL_RESOURCES = "PodLevelResources"
SANDBOX_CONDITION = "PodReadyToStartContainersCondition"
POD_LEVEL_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
RESIZE_INIT_CONTAINERS = "InPlacePodVerticalScalingInitContainers"
RESIZE_MEMORY_VOLUMES = "InPlacePodVerticalScalingMemoryBackedVolumes"
RESIZE_PREEMPTION = "InPlacePodVerticalScalingSchedulerPreemption"
DECLARED_FEATURES = "NodeDeclaredFeatures"
RESOURCE_HEALTH = "ResourceHealthStatus"
RESOURCE_HEALTH_MESSAGE = "ResourceHealthStatusMessage"
EXTENDED_CLAIMS = "DRAExtendedResource"
POD_GATES = (
    RESTART_RULES,
    RESTART_ALL,
    ENV_FILES,
    HOSTNAME,
    POD_LEVEL_RESOURCES,
    SANDBOX_CONDITION,
    POD_LEVEL_RESIZE,
    RESIZE_INIT_CONTAINERS,
    RESIZE_MEMORY_VOLUMES,
    RESIZE_PREEMPTION,
    DECLARED_FEATURES,
    RESOURCE_HEALTH,
    RESOURCE_HEALTH_MESSAGE,
    EXTENDED_CLAIMS,
)
_OF_FIELDS = (RESTART_RULES, RESTART_ALL, ENV_FILES, HOSTNAME)
_ACTION = "RestartAllContainers"
_EXTENDED_STATUS = "extendedResourceClaimStatus"


def gates_off(feature_gates: Mapping[str, bool]) -> frozenset[str]:
    """Return those of POD_GATES that are off; `feature_gates` are those that the configuration sets."""
    return frozenset(gate for gate in POD_GATES if not enabled(feature_gates, gate))


def without_gated_fields(pod: Object, off: Collection[str]) -> Object:
    """Return the pod without the fields whose gates are in `off`; the same object where nothing is left out. A pod that
    needs a feature that the node would declare stays as it is: admission rejects it."""
    status = pod.get("status")
    if isinstance(status, dict) and (kept_status := without_gated_status(status, off)) is not status:
        pod = {**pod, "status": kept_status}
    if not any(gate in off for gate in _OF_FIELDS) or not pod.get("spec") or lacks_restart_all(pod, off):
        return pod
    spec: Object = dict(pod["spec"])
    if HOSTNAME in off:
        spec.pop("hostnameOverride", None)
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        if kind in spec:
            spec[kind] = [_container(container, kind, off) for container in spec[kind] or ()]
    return pod if spec == pod["spec"] else {**pod, "spec": spec}


def without_gated_status(status: Mapping[str, Any], off: Collection[str]) -> Mapping[str, Any]:
    """Return the pod's status without the fields whose gates are in `off`; the same object where nothing is left
    out."""
    if EXTENDED_CLAIMS not in off or _EXTENDED_STATUS not in status:
        return status
    return {key: value for key, value in status.items() if key != _EXTENDED_STATUS}


def lacks_restart_all(pod: Object, off: Collection[str]) -> bool:
    """Return whether the pod restarts all its containers after an exit, and the node declares its features without
    that one."""
    if RESTART_ALL not in off or DECLARED_FEATURES in off:
        return False
    rules = (rule for _, container in every_container(pod) for rule in container.get("restartPolicyRules") or ())
    return any(rule.get("action") == _ACTION for rule in rules)


def has_bind_mount_options(pod: Object) -> bool:
    """Return whether a container sets options for the mount of a volume."""
    mounts = (mount for _, container in every_container(pod) for mount in container.get("volumeMounts") or ())
    return any(mount.get("bindMountOptions") for mount in mounts)


def _container(container: Object, kind: str, off: Collection[str]) -> Object:
    kept: dict[str, Any] = dict(container)
    if RESTART_RULES in off:
        kept.pop("restartPolicyRules", None)
        if kind != "initContainers" or kept.get("restartPolicy") != "Always":  # a sidecar stays one
            kept.pop("restartPolicy", None)
    elif RESTART_ALL in off and kept.get("restartPolicyRules"):
        kept["restartPolicyRules"] = [
            {**rule, "action": "Restart"} if rule.get("action") == _ACTION else rule
            for rule in kept["restartPolicyRules"]
        ]
    if ENV_FILES in off and kept.get("env"):
        kept["env"] = [
            {"name": variable.get("name"), "value": ""}
            if (variable.get("valueFrom") or {}).get("fileKeyRef")
            else variable
            for variable in kept["env"]
        ]
    return kept
