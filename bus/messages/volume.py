"""Messages of which volume is the owner."""

from dataclasses import dataclass, field
from enum import StrEnum

from bus.messages.usage import VolumeUsage


class VolumeState(StrEnum):
    """How far one volume of one pod is."""

    PENDING = "pending"
    MOUNTED = "mounted"
    ERROR = "error"
    UNMOUNTING = "unmounting"


@dataclass(frozen=True, kw_only=True)
class MountedVolume:
    """One volume of one pod in the actual state of the world."""

    state: VolumeState
    host_path: str = ""  # absolute; what a container's mount names as host_path
    read_only: bool = False
    block: bool = False  # a block device, and `host_path` the link to it
    selinux_relabel: bool = False  # its files belong to the pod: the runtime may give them the container's label
    group: int | None = None  # a supplemental group of the pod's processes, of the PersistentVolume
    error: str = ""  # as in the FailedMount message


@dataclass(frozen=True, kw_only=True)
class MountedVolumes:
    """Stream `volumes.mounted`, key: pod UID. Deleted once nothing of the pod is mounted and nothing is wanted."""

    uid: str
    volumes: dict[str, MountedVolume]  # by spec volume name
    attach_limit: str = ""  # why the pod must be rejected: the node takes no further volume; "" = it need not be


@dataclass(frozen=True, kw_only=True)
class VolumesInUse:
    """Stream `volumes.in_use`, key `node`: the attachable volumes for status.volumesInUse of the Node. There is no item
    until everything that is mounted was found after a start."""

    generation: str  # names this value; a later one of the same process has a higher number behind its last dot
    volumes: tuple[str, ...]  # unique names, sorted


@dataclass(frozen=True, kw_only=True)
class PrepareSubpath:
    """Request to volume: make one subpath of a mounted volume ready for one container (pods.md 6.8). A
    request and no stream, for the path may have been expanded from a Secret. Answered with PreparedSubpath; the same
    request again gives the same answer."""

    uid: str
    volume: str  # its name in the pod's spec
    container: str
    index: int  # of the mount among the container's volumeMounts
    path: str  # inside the volume, relative, expanded


@dataclass(frozen=True, kw_only=True)
class PreparedSubpath:
    """What a container's mount names as host_path, or why there is none."""

    host_path: str = ""
    error: str = ""  # as in the CreateContainerConfigError message


@dataclass(frozen=True, kw_only=True)
class ReleaseSubpaths:
    """Request to volume: the start attempt of this container has returned; its bind mounts are done with. Answered with
    an empty PreparedSubpath."""

    uid: str
    container: str


@dataclass(frozen=True, kw_only=True)
class GetVolumeUsage:
    """Request to volume: how full are the volumes of this pod that only their plugins can measure (nfs, local, csi)?"""

    uid: str


@dataclass(frozen=True, kw_only=True)
class FoundVolumeUsage:
    """Answer to GetVolumeUsage: the newest figures of each such volume that is mounted and has some."""

    volumes: tuple[VolumeUsage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CsiNode:
    """What a CSI driver answers about this node (NodeGetInfo)."""

    node_id: str
    max_volumes: int = 0  # at once on this node; 0 = no limit
    topology: dict[str, str] = field(default_factory=dict)  # labels of the Node


@dataclass(frozen=True, kw_only=True)
class RegisteredPlugin:
    """Stream `plugins.registered`, key `<type>/<name>`: a plugin that serves a socket below `plugins_registry` and was
    accepted. The stream is complete once every socket found at the start has registered its plugin or was refused."""

    type: str  # CSIPlugin
    name: str  # as `hostpath.csi.k8s.io`
    endpoint: str  # absolute path of the socket of its own service
    version: str  # of its interface, as the plugin writes it
    csi: CsiNode | None = None  # of a CSIPlugin
