"""Reads of a pod how large its memory-backed emptyDir volumes may be; pure. No shape of a pod raises."""

from shared.model.fields import dictionaries, dictionary
from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec.resources import main_containers, pod_level, pod_limits, resource_list

MEMORY = "Memory"  # a medium


def is_of_memory(volume: Object) -> bool:
    """Return whether an entry of spec.volumes is an emptyDir that is a tmpfs."""
    return dictionary(volume.get("emptyDir")).get("medium") == MEMORY


def memory_limit(pod: Object) -> int:
    """Return the memory limit of the pod's cgroup in bytes; 0 when some container has none, because then the cgroup has
    none."""
    level = pod_level(pod, "limits").get("memory")
    if level is not None:
        return level.base()
    if not all("memory" in resource_list(container, "limits") for container in main_containers(pod)):
        return 0
    total = pod_limits(pod).get("memory")
    return 0 if total is None else total.base()


def memory_volume_sizes(pod: Object) -> dict[str, int]:
    """Return the bytes that each memory-backed volume may have at most by what the pod says, by name: the minimum of
    its sizeLimit and the memory limit of the pod's cgroup. One that the pod does not limit is left out."""
    limit, sizes = memory_limit(pod), dict[str, int]()
    for volume in dictionaries(dictionary(pod.get("spec")).get("volumes")):
        if is_of_memory(volume):
            bounds = [bound for bound in (limit, _size_limit(volume)) if bound > 0]
            if bounds:
                sizes[str(volume.get("name"))] = min(bounds)
    return sizes


def _size_limit(volume: Object) -> int:
    written = dictionary(volume.get("emptyDir")).get("sizeLimit")
    try:
        return parse_quantity(written).base() if written is not None else 0
    except QuantityError:
        return 0
