"""Computes how many CPUs containers and pods request for themselves alone (node.md 4.10). Knows no machine."""

from shared.model.objects import Object
from shared.model.quantity import NANO, ZERO
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import has_pod_level_resources, is_sidecar, resource_list


def exclusive_cpus(pod: Object, container: Object) -> int:
    """Return the whole CPUs that the container requests for itself; 0 when it runs in the shared pool: its pod is not
    Guaranteed, has resources of its own, or the request is no whole number."""
    if qos_class(pod) is not QosClass.GUARANTEED or has_pod_level_resources(pod):
        return 0
    return _whole_cpus(container)


def pod_exclusive_cpus(pod: Object) -> int:
    """Return the most CPUs that containers of the pod have for themselves at one time: the regular ones with the
    sidecars, or an init container with the sidecars before it."""
    if qos_class(pod) is not QosClass.GUARANTEED or has_pod_level_resources(pod):
        return 0
    spec = pod.get("spec") or {}
    sidecars = starting = 0
    for container in spec.get("initContainers") or ():
        if is_sidecar(container):
            sidecars += _whole_cpus(container)
        else:
            starting = max(starting, sidecars + _whole_cpus(container))
    return max(starting, sidecars + sum(_whole_cpus(container) for container in spec.get("containers") or ()))


def _whole_cpus(container: Object) -> int:
    request = resource_list(container, "requests").get("cpu", ZERO)
    return 0 if request.nanos % NANO else request.nanos // NANO
