"""Computes how many CPUs containers and pods request for themselves alone (node.md 4.10). Knows no machine.

`pod_level`: feature gate PodLevelResourceManagers. Without it a pod with resources of its own gets nothing alone.
"""

from services.podsync.core.placement.pod_placement import PodPlacement
from shared.model.machine_topology import CpuSet
from shared.model.objects import Object
from shared.model.quantity import NANO, ZERO, Quantity
from shared.podspec.qos import QosClass, is_guaranteed_alone, qos_class
from shared.podspec.resources import has_pod_level_resources, is_sidecar, pod_requests, resource_list


def may_have_own(pod: Object, container: Object, *, pod_level: bool) -> bool:
    """Return whether the container may get CPUs and memory alone: its pod is Guaranteed, and where the pod has
    resources of its own, so is the container by itself."""
    if qos_class(pod) is not QosClass.GUARANTEED:
        return False
    return not has_pod_level_resources(pod) or (pod_level and is_guaranteed_alone(container))


def exclusive_cpus(pod: Object, container: Object, *, pod_level: bool = False) -> int:
    """Return the whole CPUs that the container requests for itself; 0 when it runs on shared ones: it may have none, or
    the request is no whole number."""
    return _whole_cpus(container) if may_have_own(pod, container, pod_level=pod_level) else 0


def pod_exclusive_cpus(pod: Object, *, pod_level: bool = False) -> int:
    """Return the CPUs that the pod requests for itself as a whole. Without resources of its own these are the most that
    its containers have for themselves at one time: the regular ones with the sidecars, or an init container with the
    sidecars before it."""
    if qos_class(pod) is not QosClass.GUARANTEED:
        return 0
    if has_pod_level_resources(pod):
        return _whole(pod_requests(pod, overhead=False).get("cpu", ZERO)) if pod_level else 0
    spec = pod.get("spec") or {}
    sidecars = starting = 0
    for container in spec.get("initContainers") or ():
        if is_sidecar(container):
            sidecars += _whole_cpus(container)
        else:
            starting = max(starting, sidecars + _whole_cpus(container))
    return max(starting, sidecars + sum(_whole_cpus(container) for container in spec.get("containers") or ()))


def reusable_cpus(pod: Object, own: PodPlacement) -> CpuSet:
    """Return the CPUs of init containers that have ended when later containers start, and that none of these has."""
    spec, reusable = pod.get("spec") or {}, frozenset[int]()
    for container in spec.get("initContainers") or ():
        if placement := own.containers.get(container["name"]):
            reusable = reusable - placement.cpus if is_sidecar(container) else reusable | placement.cpus
    for container in spec.get("containers") or ():
        if placement := own.containers.get(container["name"]):
            reusable -= placement.cpus
    return reusable


def _whole_cpus(container: Object) -> int:
    return _whole(resource_list(container, "requests").get("cpu", ZERO))


def _whole(request: Quantity) -> int:
    return 0 if request.nanos % NANO else request.nanos // NANO
