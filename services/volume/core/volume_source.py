"""What one entry of spec.volumes asks for, as far as this version can give it (reference volumes.md 13.1, 13.2)."""

from dataclasses import dataclass
from typing import Any

from shared.model.objects import Object
from shared.podspec.quantity import QuantityError, parse_quantity
from shared.podspec.resources import main_containers, pod_level, pod_limits, resource_list

EMPTY_DIR = "kubernetes.io/empty-dir"
MEMORY = "Memory"


@dataclass(frozen=True)
class EmptyDir:
    """A directory of the pod's own. `size`: bytes of the tmpfs, medium Memory only, 0 = the kernel's default."""

    medium: str = ""
    size: int = 0
    fs_group: int | None = None


@dataclass(frozen=True)
class HostPath:
    """A path of the node, checked as `type` says ("" = not at all)."""

    path: str
    type: str = ""


@dataclass(frozen=True)
class Refused:
    """Cannot be mounted, whatever happens outside; `reason` is the inner text of the FailedMount message."""

    reason: str


VolumeSource = EmptyDir | HostPath | Refused


def volume_source(pod: Object, name: str, *, node_memory: int) -> VolumeSource:
    """The source of the named volume. `node_memory`: bytes a tmpfs may have at most, 0 = not known."""
    spec = pod.get("spec") or {}
    volume = next((volume for volume in spec.get("volumes") or () if volume.get("name") == name), None)
    if volume is None:
        return Refused("the pod has no volume of that name")
    match volume:
        case {"emptyDir": dict() | None as source}:
            return _empty_dir(pod, source or {}, node_memory)
        case {"hostPath": dict() as source}:
            return HostPath(path=str(source.get("path", "")), type=str(source.get("type") or ""))
    types = sorted(key for key in volume if key != "name")
    if not types:
        return EmptyDir(fs_group=_fs_group(pod))  # the API's default source
    return Refused(f"volume type {types[0]} is not supported yet")


def _empty_dir(pod: Object, source: dict[str, Any], node_memory: int) -> VolumeSource:
    medium = str(source.get("medium") or "")
    if medium == "HugePages" or medium.startswith("HugePages-"):
        return Refused(f"emptyDir medium {medium} is not supported yet")
    if medium not in ("", MEMORY):
        return Refused(f'unknown storage medium "{medium}"')
    size = 0
    if medium == MEMORY:
        try:
            limit = parse_quantity(source["sizeLimit"]).base() if source.get("sizeLimit") is not None else 0
        except QuantityError as error:
            return Refused(f"emptyDir sizeLimit: {error}")
        size = _least(node_memory, _pod_memory_limit(pod), limit)
    return EmptyDir(medium=medium, size=size, fs_group=_fs_group(pod))


def _least(*bounds: int) -> int:
    return min((bound for bound in bounds if bound > 0), default=0)


def _pod_memory_limit(pod: Object) -> int:
    """The memory limit of the pod's cgroup in bytes; 0 when some container has none, for then the cgroup has none."""
    level = pod_level(pod, "limits").get("memory")
    if level is not None:
        return level.base()
    if not all("memory" in resource_list(container, "limits") for container in main_containers(pod)):
        return 0
    total = pod_limits(pod).get("memory")
    return 0 if total is None else total.base()


def _fs_group(pod: Object) -> int | None:
    group = ((pod.get("spec") or {}).get("securityContext") or {}).get("fsGroup")
    return group if isinstance(group, int) else None
