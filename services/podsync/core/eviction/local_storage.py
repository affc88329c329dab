"""Finds an emptyDir, container or pod that uses more local ephemeral storage than its limit (node.md 5.8)."""

from typing import Any

from bus.messages.usage import FilesystemUsage
from services.podsync.core.eviction.ranking import Candidate
from services.podsync.core.eviction.signals import Layout
from shared.model.objects import Object
from shared.model.quantity import Quantity, QuantityError, parse_quantity
from shared.podspec.resources import is_sidecar, main_containers, pod_limits, resource_list

EPHEMERAL_STORAGE = "ephemeral-storage"


def has_limit(pod: Object) -> bool:
    """Return whether the pod has a limit of local storage."""
    spec = pod.get("spec") or {}
    if any((volume.get("emptyDir") or {}).get("sizeLimit") for volume in spec.get("volumes") or ()):
        return True
    return any(
        EPHEMERAL_STORAGE in ((container.get("resources") or {}).get("limits") or {})
        for container in main_containers(pod)
    )


def limit_exceeded(candidate: Candidate, layout: Layout) -> tuple[str, str] | None:
    """Return the message for a pod that exceeds a limit, and the label for the metric of evictions; None = it exceeds
    none."""
    if candidate.critical or candidate.usage is None:
        return None
    return _empty_dir(candidate) or _pod(candidate) or _container(candidate, layout)


def _empty_dir(candidate: Candidate) -> tuple[str, str] | None:
    used = {volume.name: volume.filesystem.used for volume in candidate.usage.volumes} if candidate.usage else {}
    for volume in (candidate.pod.get("spec") or {}).get("volumes") or ():
        limit = _quantity((volume.get("emptyDir") or {}).get("sizeLimit"))
        name, amount = volume.get("name"), used.get(volume.get("name"))
        if limit and amount is not None and Quantity.of_base(amount) > limit:
            text = f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
            return text, "emptydirfs.limit"
    return None


def _pod(candidate: Candidate) -> tuple[str, str] | None:
    storage = candidate.usage.ephemeral_storage if candidate.usage else None
    limit = pod_limits(candidate.pod).get(EPHEMERAL_STORAGE)
    if limit is None or storage is None or storage.used is None or Quantity.of_base(storage.used) <= limit:
        return None
    text = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    return text, "ephemeralpodfs.limit"


def _container(candidate: Candidate, layout: Layout) -> tuple[str, str] | None:
    usages = {usage.name: usage for usage in candidate.usage.containers} if candidate.usage else {}
    pod = candidate.pod.get("spec") or {}
    for spec in (*(pod.get("containers") or ()), *filter(is_sidecar, pod.get("initContainers") or ())):
        limit, usage = resource_list(spec, "limits").get(EPHEMERAL_STORAGE), usages.get(str(spec.get("name")))
        if not limit or usage is None:
            continue
        used = _used(usage.logs) + (0 if layout is Layout.DEDICATED_IMAGES else _used(usage.rootfs))
        if Quantity.of_base(used) > limit:
            text = f'Container {usage.name} exceeded its local ephemeral storage limit "{limit}". '
            return text, "ephemeralcontainerfs.limit"
    return None


def _used(usage: FilesystemUsage | None) -> int:
    return 0 if usage is None else usage.used or 0


def _quantity(value: Any) -> Quantity | None:
    try:
        return None if value is None else parse_quantity(value)
    except QuantityError:
        return None
