"""What one entry of spec.volumes asks for, as far as this version can give it (volumes.md 9, 13.1, 13.2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.volume.core.files_source import Files, files_source, fs_group
from shared.model.objects import Object
from shared.podspec.quantity import QuantityError, parse_quantity
from shared.podspec.resources import main_containers, parse_resources, pod_level, pod_limits, resource_list

EMPTY_DIR = "kubernetes.io/empty-dir"
MEMORY = "Memory"


@dataclass(frozen=True)
class EmptyDir:
    """A directory of the pod's own. `size`: bytes of the tmpfs, medium Memory only, 0 = the kernel's default."""

    medium: str = ""
    size: int = field(default=0, compare=False)  # what the node can give may change under a mounted volume
    fs_group: int | None = None


@dataclass(frozen=True)
class HostPath:
    """A path of the node, checked as `type` says ("" = not at all)."""

    path: str
    type: str = ""


@dataclass(frozen=True)
class Image:
    """An image, which the runtime mounts into the containers itself: there is nothing to do for it."""


@dataclass(frozen=True)
class Refused:
    """Cannot be mounted, whatever happens outside; `reason` is the inner text of the FailedMount message."""

    reason: str


VolumeSource = EmptyDir | HostPath | Files | Image | Refused


@dataclass(frozen=True)
class Node:
    """What a volume depends on beside its pod. `memory`: bytes that pods may have, 0 = not known; `allocatable`:
    resource -> quantity text; `provisional`: both are a guess; `alone`: there is no API server."""

    memory: int = 0
    allocatable: Mapping[str, str] = field(default_factory=dict)
    provisional: bool = False
    alone: bool = False


def node_of(allocatable: Mapping[str, str], *, provisional: bool = False, alone: bool = False) -> Node:
    """The node with these resources."""
    memory = parse_resources(allocatable).get("memory")
    return Node(0 if memory is None else memory.base(), allocatable, provisional, alone)


def volume_source(pod: Object, name: str, node: Node) -> VolumeSource:
    """The source of the named volume. Whatever the object holds, it never raises."""
    spec = pod.get("spec") or {}
    volume = next((volume for volume in spec.get("volumes") or () if volume.get("name") == name), None)
    if volume is None:
        return Refused("the pod has no volume of that name")
    if node.alone and (reason := _needs_api(volume, name)):
        return Refused(reason)
    match volume:
        case {"emptyDir": dict() | None as source}:
            return _empty_dir(pod, source or {}, node.memory)
        case {"hostPath": dict() as source}:
            return HostPath(path=str(source.get("path", "")), type=str(source.get("type") or ""))
        case {"image": dict()}:
            return Image()
    size = _least(node.memory, _pod_memory_limit(pod))
    files = files_source(pod, volume, allocatable=node.allocatable, provisional=node.provisional, size=size)
    if files is not None:
        return files
    types = sorted(key for key in volume if key != "name")
    if not types:
        return EmptyDir(fs_group=fs_group(pod))  # the API's default source
    return Refused(f"volume type {types[0]} is not supported yet")


def _needs_api(volume: Object, name: str) -> str:
    """Why a node without an API server cannot give this volume; "" = it can."""
    if "projected" in volume:
        return f"cannot setup projected volume {name} because kube client is not configured"
    if "secret" in volume or "configMap" in volume:
        return "not supported due to running kubelet in standalone mode"
    return ""


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
    return EmptyDir(medium=medium, size=size, fs_group=fs_group(pod))


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
