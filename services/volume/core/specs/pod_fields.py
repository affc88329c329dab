"""Reads fields of a pod that volumes depend on: group, user and memory limit; pure. No shape of a pod raises."""

from shared.model.fields import dictionary, number
from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec.memory_volumes import memory_limit
from shared.podspec.resources import HUGEPAGES, hugepage_size, main_containers, pod_level, resource_list

_HUGE_PAGES = "HugePages"  # a medium


def security_context(pod: Object) -> Object:
    """Return the pod's spec.securityContext."""
    return dictionary(dictionary(pod.get("spec")).get("securityContext"))


def fs_group(pod: Object) -> int | None:
    """Return the group ID that the pod's volumes belong to (spec.securityContext.fsGroup)."""
    return number(security_context(pod).get("fsGroup"))


def changes_group_always(pod: Object) -> bool:
    """Return whether fsGroup is given to every file of a volume at each mount (fsGroupChangePolicy is not
    OnRootMismatch)."""
    return security_context(pod).get("fsGroupChangePolicy") != "OnRootMismatch"


def fs_user(pod: Object) -> int | None:
    """Return the user ID that every container of the pod runs as; None unless all have the same (volumes.md 5.5)."""
    of_pod = security_context(pod).get("runAsUser")
    users = set()
    for container in main_containers(pod):
        own = dictionary(container.get("securityContext")).get("runAsUser")
        users.add(number(of_pod if own is None else own))
    return users.pop() if len(users) == 1 else None


def huge_page_size(pod: Object, medium: str) -> int | str:
    """Return the bytes of a page for an emptyDir of this medium, `HugePages` or `HugePages-<size>`, or why the pod can
    have none (volumes.md 13.1)."""
    wanted = 0
    if written := medium != _HUGE_PAGES:
        try:
            wanted = parse_quantity(medium.removeprefix(f"{_HUGE_PAGES}-")).base()
        except QuantityError as error:
            return f"medium {medium}: {error}"
    requested = {name for container in main_containers(pod) for name in resource_list(container, "requests")}
    sizes = {
        parse_quantity(name.removeprefix(HUGEPAGES)).base()
        for name in requested | pod_level(pod, "requests").keys()
        if hugepage_size(name)
    }
    if wanted in sizes or (not written and len(sizes) == 1):
        return wanted or sizes.pop()
    if sizes and not written:
        return f"medium: {medium} can't be used if container requests multiple huge page sizes"
    return f"medium {medium}: hugePages storage requested, but there is no resource request for huge pages"


def tmpfs_size(pod: Object, node_memory: int, limit: int = 0) -> int:
    """Return the bytes of a tmpfs of the pod: the minimum of the node's memory, the memory limit of the pod's cgroup
    and `limit`. 0 as an argument is no bound; 0 as the result is the kernel's default size."""
    return min((bound for bound in (node_memory, memory_limit(pod), limit) if bound > 0), default=0)
