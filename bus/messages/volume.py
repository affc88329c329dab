"""Messages of which volume is the owner."""

from enum import StrEnum

from msgspec import Struct, field

from bus.messages.usage import VolumeUsage


class VolumeState(StrEnum):
    """How far one volume of one pod is."""

    PENDING = "pending"
    MOUNTED = "mounted"
    ERROR = "error"
    UNMOUNTING = "unmounting"


class VolumeHealth(Struct, frozen=True, kw_only=True):
    """One adverse condition of a volume on this node, as its driver reports it."""

    status: str  # `Inaccessible`, `DataLoss` or `Degraded`
    reason: str  # a word of the driver, of at most 256 bytes; with the status it names the condition
    message: str = ""  # the driver's text, of at most 1024 bytes


class MountedVolume(Struct, frozen=True, kw_only=True):
    """One volume of one pod in the actual state of the world."""

    state: VolumeState  # `pending`, `mounted`, `error` or `unmounting`
    host_path: str = ""  # absolute path for a container's mount
    read_only: bool = False  # it is mounted read-only
    block: bool = False  # a block device, and `host_path` the link to it below `pods/<uid>/volumeDevices`
    # the runtime may give its files the container's SELinux label: true of all types but hostPath and image
    selinux_relabel: bool = False
    # a supplemental group of the pod's processes: annotation `pv.beta.kubernetes.io/gid` of the PersistentVolume
    group: int | None = None
    error: str = ""  # text of the FailedMount message
    unsupported: bool = False  # no attempt can mount a volume of its type
    # adverse conditions by its driver, the worst first, at most 16; none where it reports none, or nothing. null = not
    # read since volume has started: what was known stays
    health: tuple[VolumeHealth, ...] | None = None


class MountedVolumes(Struct, frozen=True, kw_only=True):
    """Stream `volumes.mounted`, key: pod UID. Deleted once nothing of the pod is mounted and nothing is wanted."""

    uid: str  # pod UID
    volumes: dict[str, MountedVolume]  # name in the spec -> the volume
    # why podsync must reject the pod: the node takes no further volume of a driver; "" = it need not
    attach_limit: str = ""


class VolumesInUse(Struct, frozen=True, kw_only=True):
    """Stream `volumes.in_use`, key `node`: the attachable volumes for status.volumesInUse of the Node. There is no item
    until everything that is mounted was found after a start."""

    generation: str  # names this value; the number behind the last dot grows within one process
    volumes: tuple[str, ...]  # unique names of attachable volumes that are desired or mounted, sorted


class PrepareSubpath(Struct, frozen=True, kw_only=True):
    """Request to volume: make one subpath of a mounted volume ready for one container (pods.md 6.8). A
    request and no stream, for the path may have been expanded from a Secret. Answered with PreparedSubpath; the same
    request again gives the same answer."""

    uid: str  # pod UID
    volume: str  # its name in the pod's spec
    container: str  # name of the container
    index: int  # of the mount among the container's volumeMounts, from 0
    path: str  # inside the volume, relative, expanded; never logged: it may come from a Secret


class PreparedSubpath(Struct, frozen=True, kw_only=True):
    """What a container's mount names as host_path, or why there is none."""

    host_path: str = ""  # path for the container's mount; empty when it failed, and after a release
    error: str = ""  # text of the container's CreateContainerConfigError; without details of the host


class ReleaseSubpaths(Struct, frozen=True, kw_only=True):
    """Request to volume: the start attempt of this container has returned; its bind mounts are done with. Answered with
    an empty PreparedSubpath."""

    uid: str  # pod UID
    container: str  # the container whose start attempt has returned


class ResizeMemoryVolumes(Struct, frozen=True, kw_only=True):
    """Request to volume: give the memory-backed emptyDir volumes of a pod these sizes, in one direction: those that are
    larger shrink, or those that are smaller grow, so that podsync can change the pod's memory between both. A volume
    that the pod does not need is left out. Answered with ResizedMemoryVolumes; the same request again changes
    nothing."""

    uid: str  # pod UID
    sizes: dict[str, int]  # name in the pod's spec -> bytes; the memory of the node limits them besides
    grow: bool  # whether the volumes grow, else shrink


class ResizedMemoryVolumes(Struct, frozen=True, kw_only=True):
    """Answer to ResizeMemoryVolumes."""

    error: str = ""  # text for the pod's condition PodResizeInProgress; without details of the host; "" = all have it


class GetVolumeUsage(Struct, frozen=True, kw_only=True):
    """Request to volume: how full are the volumes of this pod that only their plugins can measure (nfs, local, csi)?"""

    uid: str  # pod UID


class FoundVolumeUsage(Struct, frozen=True, kw_only=True):
    """Answer to GetVolumeUsage: the newest figures of each such volume that is mounted and has some."""

    # each mounted nfs, local or csi volume that has figures: those read now, or the last ones where that takes longer
    # than 2 s
    volumes: tuple[VolumeUsage, ...] = ()


class CsiNode(Struct, frozen=True, kw_only=True):
    """What a CSI driver answers about this node (NodeGetInfo)."""

    node_id: str  # the driver's name of this node
    max_volumes: int = 0  # volumes of the driver at once on this node; 0 = no limit
    topology: dict[str, str] = field(default_factory=dict)  # label -> value, for the Node


class RegisteredPlugin(Struct, frozen=True, kw_only=True):
    """Stream `plugins.registered`, key `<type>/<name>`: a plugin that serves a socket below `plugins_registry` and was
    accepted. The stream is complete once every socket found at the start has registered its plugin or was refused."""

    type: str  # `CSIPlugin`, `DevicePlugin` or `DRAPlugin`
    name: str  # name of the plugin, for a CSI driver that of its CSIDriver, for a device plugin the resource
    endpoint: str  # absolute path of the socket of the plugin's own service, of several the one that registered last
    version: str  # of its interface, as the plugin writes it; of a `DRAPlugin` the gRPC service, such as `v1.DRAPlugin`
    csi: CsiNode | None = None  # of a `CSIPlugin`
    health: str = ""  # of a `DRAPlugin`: the gRPC service that reports the health of its devices; "" = it has none
    connected: bool = True  # of a `DRAPlugin`: it listens at one of its sockets, as far as it is known
