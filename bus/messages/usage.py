"""What the node and its pods use: stream `node.usage` of pleg, and the request for a fresh reading, also of pods.

Sizes are bytes, `time` is wall clock seconds since the epoch; None = the host does not offer it, or it cannot be read.
"""

from dataclasses import dataclass

MOST = 2**63 - 1  # bytes or inodes: a FUSE file system may report any number, a message holds 64 bits


@dataclass(frozen=True, kw_only=True)
class PressureShare:
    """One line of a PSI file: how long tasks waited."""

    total: int  # microseconds since the cgroup was created
    avg10: float  # percent of the last 10 s; 60 s, 300 s
    avg60: float
    avg300: float


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """PSI of one resource: `some` = at least one task waited, `full` = all of them."""

    some: PressureShare
    full: PressureShare


@dataclass(frozen=True, kw_only=True)
class CgroupUsage:
    """One reading of one cgroup with everything below it (node.md 7.4)."""

    time: float
    cpu_nanoseconds: int | None = None  # CPU time since the cgroup was created
    cpu_nanocores: int | None = None  # CPU nanoseconds per second between two readings
    memory_available: int | None = None  # limit - working set; None without a limit
    memory_usage: int | None = None
    memory_working_set: int | None = None
    memory_rss: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    swap_available: int | None = None  # None without a limit
    swap_usage: int | None = None
    processes: int | None = None  # in the cgroup itself
    cpu_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None


@dataclass(frozen=True, kw_only=True)
class FilesystemUsage:
    """A filesystem, or the part of it that files use (`used`, `inodes_used`)."""

    time: float
    available: int | None = None
    capacity: int | None = None
    used: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    inodes_used: int | None = None


def filesystem_usage(
    time: float, *, block: int, blocks: int, free: int, available: int, inodes: int, inodes_free: int
) -> FilesystemUsage:
    """The figures of a filesystem as statvfs reports them: `block` is the bytes of one block; `available` are the
    blocks that are free for those who are not root. Each figure is limited to 0 … `MOST`."""

    def limited(number: int) -> int:
        return max(0, min(number, MOST))

    return FilesystemUsage(
        time=time,
        available=limited(block * available),
        capacity=limited(block * blocks),
        used=limited(block * (blocks - free)),
        inodes=limited(inodes),
        inodes_free=limited(inodes_free),
        inodes_used=limited(inodes - inodes_free),
    )


@dataclass(frozen=True, kw_only=True)
class InterfaceUsage:
    """Counters of one network interface since it was created."""

    name: str
    rx_bytes: int
    rx_errors: int
    tx_bytes: int
    tx_errors: int
    rx_packets: int = 0
    rx_dropped: int = 0
    tx_packets: int = 0
    tx_dropped: int = 0


@dataclass(frozen=True, kw_only=True)
class NetworkUsage:
    """The interfaces of one network namespace, without loopback and the node's ends of pods' interfaces."""

    time: float
    interfaces: tuple[InterfaceUsage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ContainerUsage:
    """One running container of a pod; of several of one name the newest."""

    id: str  # bare CRI container id
    name: str
    created_at: int  # nanoseconds since the epoch, by the runtime
    cgroup: CgroupUsage | None = None
    rootfs: FilesystemUsage | None = None  # `used`: the writable layer; the rest: its filesystem
    logs: FilesystemUsage | None = None  # `used`: the log files; the rest: the root directory's filesystem


@dataclass(frozen=True, kw_only=True)
class VolumeUsage:
    """One mounted volume of a pod."""

    name: str
    filesystem: FilesystemUsage
    ephemeral: bool = False  # its files count as the pod's ephemeral storage
    claim: str = ""  # name of its PersistentVolumeClaim; "" = of another kind
    abnormal: bool | None = None  # whether its CSI driver reports that it is damaged; None = the driver reports nothing


@dataclass(frozen=True, kw_only=True)
class PodUsage:
    """A pod with a running container."""

    uid: str
    name: str
    namespace: str
    created_at: int  # nanoseconds since the epoch: the newest sandbox, by the runtime
    read_at: float  # CLOCK_MONOTONIC seconds at the begin of the reading of its cgroups
    cgroup: CgroupUsage | None = None  # the pod's own; without one the sums over its containers
    network: NetworkUsage | None = None  # None with the node's network
    processes: int | None = None  # in all its containers
    containers: tuple[ContainerUsage, ...] = ()
    volumes: tuple[VolumeUsage, ...] = ()
    ephemeral_storage: FilesystemUsage | None = None  # `used`: writable layers, logs, ephemeral volumes, etc-hosts


@dataclass(frozen=True, kw_only=True)
class SystemContainerUsage:
    """A cgroup of the node: `pods` (kubepods), `kubelet`, `runtime` or `misc`."""

    name: str
    created_at: float  # wall clock seconds since the epoch
    cgroup: CgroupUsage


@dataclass(frozen=True, kw_only=True)
class NodeUsage:
    """Stream `node.usage`, key `node`: the machine and its filesystems (node.md 5.1, 7.4)."""

    read_at: float  # CLOCK_MONOTONIC seconds at the begin of the reading
    started_at: float  # wall clock seconds of the machine's boot
    cgroup: CgroupUsage  # the root cgroup; memory and swap available: of what the machine has
    memory_capacity: int | None = None
    pids_max: int | None = None
    pids_current: int | None = None  # tasks of the machine
    network: NetworkUsage | None = None
    nodefs: FilesystemUsage | None = None  # of the root directory
    imagefs: FilesystemUsage | None = None  # `used`: the images
    containerfs: FilesystemUsage | None = None  # of writable layers
    nodefs_device: str = ""  # "" = not known
    imagefs_device: str = ""  # of images
    containerfs_device: str = ""  # of writable layers; "" = that of images
    system_containers: tuple[SystemContainerUsage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GetUsage:
    """Request to pleg: a reading of the node and, with `pods`, of every pod.

    Cgroups and filesystems were read at most `max_age_seconds` ago. Files of pods (writable layers, logs, volumes) are
    measured again where their figure is older than `max_age_files_seconds`; None = the last figure will do. Of files
    that take longer than 3 s to measure it is the one before or what is counted so far, whichever is more, or absent.
    """

    max_age_seconds: float = 15.0
    max_age_files_seconds: float | None = None
    pods: bool = True


@dataclass(frozen=True, kw_only=True)
class FoundUsage:
    """Answer to GetUsage."""

    node: NodeUsage
    pods: tuple[PodUsage, ...] = ()
    complete: bool = False  # the pods of the runtime were listed: one without a usage has no running container
