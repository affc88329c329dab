"""Selects the containers of a pod that have a usage, and sums the pod's own figures (node.md 7.1). Pure."""

from collections.abc import Iterable

from bus.messages.usage import CgroupUsage
from shared.model.runtime import Container, ContainerState, RuntimePod

_SUMS = (
    "cpu_nanoseconds",
    "memory_available",
    "memory_usage",
    "memory_working_set",
    "memory_rss",
    "page_faults",
    "major_page_faults",
    "swap_available",
    "swap_usage",
    "processes",
)


def running_containers(pod: RuntimePod) -> tuple[Container, ...]:
    """Return the running containers, of each name the newest."""
    newest: dict[str, Container] = {}
    for container in pod.containers:  # newest first
        if container.state is ContainerState.RUNNING:
            newest.setdefault(container.name, container)
    return tuple(newest.values())


def sum_of(usages: Iterable[CgroupUsage]) -> CgroupUsage | None:
    """Return the sum of each figure that some of them have, at the time of the newest; None = there are no usages."""
    usages = tuple(usages)
    if not usages:
        return None
    sums = {}
    for field in _SUMS:
        numbers = [value for usage in usages if (value := getattr(usage, field)) is not None]
        sums[field] = sum(numbers) if numbers else None
    return CgroupUsage(time=max(usage.time for usage in usages), **sums)


def is_cgroup_of_pod(directory: str, uid: str) -> bool:
    """Return whether the name of a cgroup's directory, by either driver, is that of the pod."""
    return directory == f"pod{uid}" or directory.endswith(f"-pod{uid.replace('-', '_')}.slice")
