"""Decides the label values of metrics, which are small sets, whatever a pod contains (node.md 4.22, 9.1)."""

from collections.abc import Iterator

from services.podsync.core.pod.allocation import Allocation
from shared.model.objects import Object
from shared.model.quantity import Quantity
from shared.podspec.resources import is_extended, resource_list

_REJECTIONS = frozenset(
    [
        "AppArmor",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodOSNotSupported",
        "InvalidNodeInfo",
        "InitContainerRestartPolicyForbidden",
        "SupplementalGroupsPolicyNotSupported",
        "UnexpectedAdmissionError",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfpods",
        "PodLevelResourcesNotSupported",
        "PodFeatureUnsupported",
        "Evicted",
        "SysctlForbidden",
        "TopologyAffinityError",
        "NodeShutdown",
        "VolumeAttachmentLimitExceeded",
    ]
) | {"node(s) had taints that the pod didn't tolerate"}
_TYPES = (("initContainers", "init_container"), ("ephemeralContainers", "ephemeral_container"))
_MEGABYTE, _GIGABYTE = 1 << 20, 1 << 30
_SIZES = (  # largest size in bytes, label
    (10 * _MEGABYTE, "0-10MB"),
    (100 * _MEGABYTE, "10MB-100MB"),
    (500 * _MEGABYTE, "100MB-500MB"),
    (1 * _GIGABYTE, "500MB-1GB"),
    (5 * _GIGABYTE, "1GB-5GB"),
    (10 * _GIGABYTE, "5GB-10GB"),
    (20 * _GIGABYTE, "10GB-20GB"),
    (30 * _GIGABYTE, "20GB-30GB"),
    (40 * _GIGABYTE, "30GB-40GB"),
    (60 * _GIGABYTE, "40GB-60GB"),
    (100 * _GIGABYTE, "60GB-100GB"),
)

_INFEASIBLE = (
    ("swap", "swap_limitation"),
    ("is disabled", "feature_gate_off"),
    ("CPU Manager policy", "guaranteed_pod_cpu_manager_static_policy"),
    ("Memory Manager policy", "guaranteed_pod_memory_manager_static_policy"),
)


def rejection(reason: str) -> str:
    """Return the label of the reason of a rejection."""
    if reason in _REJECTIONS:
        return reason
    return "OutOfExtendedResources" if reason.startswith("OutOf") else "Other"


def preemption(resource: str) -> str:
    """Return the label of a preemption for this resource; extended resources, of which a node may have many, share
    one."""
    return "ExtendedResources" if is_extended(resource) else resource


def container_type(pod: Object, name: str) -> str:
    """Return the type of the pod's container with this name."""
    for field, kind in _TYPES:
        if any(container.get("name") == name for container in pod.get("spec", {}).get(field) or ()):
            return kind
    return "container"


def image_size(size: int | None) -> str:
    """Return the range in which the size (bytes) of an image is; None = not known."""
    if size is None:
        return "N/A"
    return next((text for limit, text in _SIZES if size <= limit), "GT100GB")


def infeasible(message: str) -> str:
    """Return the label of the reason of an infeasible resize, by the message of its condition."""
    return next((label for text, label in _INFEASIBLE if text in message), "insufficient_node_allocatable")


def resize_operations(before: Allocation, after: Allocation) -> Iterator[tuple[str, str, str]]:
    """Yield resource, requirement and operation of each change of a container's CPU and memory."""
    for name in before.containers.keys() & after.containers.keys():
        for requirement in ("requests", "limits"):
            old = resource_list({"resources": before.containers[name]}, requirement)
            new = resource_list({"resources": after.containers[name]}, requirement)
            for resource in ("cpu", "memory"):
                if old.get(resource) != new.get(resource):
                    yield resource, requirement, _operation(old.get(resource), new.get(resource))


def _operation(old: Quantity | None, new: Quantity | None) -> str:
    if old is None:
        return "add"
    if new is None:
        return "remove"
    return "increase" if new > old else "decrease"
