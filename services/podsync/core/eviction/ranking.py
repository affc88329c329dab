"""Decides in which order pods are evicted for a signal (node.md 5.5)."""

from collections.abc import Iterable

from msgspec import Struct

from bus.messages.usage import FilesystemUsage, PodUsage
from services.podsync.core.eviction.signals import Layout
from shared.model.eviction import SIGNALS, Resource
from shared.model.objects import Object
from shared.podspec.pod_source import is_critical
from shared.podspec.resources import pod_requests


class Candidate(Struct, frozen=True, kw_only=True):
    """Has an active pod with its allocated resources. `usage` None = it has no running container, or was not read
    yet."""

    uid: str
    pod: Object
    usage: PodUsage | None

    @property
    def critical(self) -> bool:
        """Whether the pod is never evicted."""
        return is_critical(self.pod)

    @property
    def priority(self) -> int:
        """spec.priority, 0 by default."""
        value = (self.pod.get("spec") or {}).get("priority")
        return value if isinstance(value, int) else 0

    def request(self, resource: str) -> int:
        """Return the effective request in bytes, or as a count."""
        amount = pod_requests(self.pod).get(resource)
        return 0 if amount is None else amount.base()


def rank(signal: str, candidates: Iterable[Candidate], layout: Layout) -> list[Candidate]:
    """Return the pods in the order of eviction, critical ones among them. Pods without a usage come first in every
    comparison by usage, so before all others where the first comparison is one; equal pods are in the order of their
    UIDs."""
    resource, filesystem = SIGNALS[signal].resource, signal.partition(".")[0]

    def key(candidate: Candidate) -> tuple[object, ...]:
        if resource is Resource.PIDS:
            count = candidate.usage.processes if candidate.usage else None
            return (candidate.priority, _unknown_first(count), candidate.uid)
        used = _used(candidate.usage, resource, filesystem, layout)
        request = candidate.request("memory" if resource is Resource.MEMORY else "ephemeral-storage")
        exceeds = used is None or used > (0 if resource is Resource.INODES else request)
        over = None if used is None else used - request
        return (used is not None, not exceeds, candidate.priority, _unknown_first(over), candidate.uid)

    return sorted(candidates, key=key)


def disk_usage(usage: PodUsage, filesystem: str, layout: Layout, *, inodes: bool = False) -> int:
    """Return the bytes, or inodes, of the pod's files on `nodefs`, `imagefs` or `containerfs`."""
    layers = sum(_amount(container.rootfs, inodes) for container in usage.containers)
    others = sum(_amount(container.logs, inodes) for container in usage.containers)
    others += sum(_amount(volume.filesystem, inodes) for volume in usage.volumes if volume.ephemeral)
    on_nodefs, on_imagefs, on_containerfs = {
        Layout.SINGLE: (layers + others, layers + others, layers + others),
        Layout.DEDICATED_IMAGES: (others, layers, layers),
        Layout.SPLIT: (layers + others, 0, layers + others),
    }[layout]
    return {"nodefs": on_nodefs, "imagefs": on_imagefs, "containerfs": on_containerfs}[filesystem]


def _used(usage: PodUsage | None, resource: Resource, filesystem: str, layout: Layout) -> int | None:
    if usage is None:
        return None
    if resource is Resource.MEMORY:
        return usage.cgroup.memory_working_set if usage.cgroup else None
    return disk_usage(usage, filesystem, layout, inodes=resource is Resource.INODES)


def _amount(usage: FilesystemUsage | None, inodes: bool) -> int:
    return 0 if usage is None else (usage.inodes_used if inodes else usage.used) or 0


def _unknown_first(amount: int | None) -> tuple[bool, int]:
    """Return a sort key with amounts that are not known first, then larger ones before smaller ones."""
    return (False, 0) if amount is None else (True, -amount)
