"""What the node and its pods use: stream `node.usage` of pleg, and the request for a fresh reading, also of pods.

Sizes are bytes, `time` is wall clock seconds since the epoch; None = the host does not offer it, or it cannot be read.
"""

from msgspec import Struct

MAX_AMOUNT = 2**63 - 1  # bytes or inodes: a FUSE file system may report any number, a message holds 64 bits


class PressureShare(Struct, frozen=True, kw_only=True):
    """One line of a PSI file: how long tasks waited."""

    total: int  # microseconds since the cgroup was created
    avg10: float  # percent of the last 10 s
    avg60: float  # percent of the last 60 s
    avg300: float  # percent of the last 300 s


class Pressure(Struct, frozen=True, kw_only=True):
    """PSI of one resource: `some` = at least one task waited, `full` = all of them."""

    some: PressureShare  # at least one task waited
    full: PressureShare  # all tasks waited


class CgroupUsage(Struct, frozen=True, kw_only=True):
    """One reading of one cgroup with everything below it (node.md 7.4)."""

    time: float  # of the reading
    cpu_nanoseconds: int | None = None  # CPU time since the cgroup was created
    cpu_nanocores: int | None = None  # CPU nanoseconds per second between two readings
    memory_available: int | None = None  # limit - working set; None without a limit
    memory_usage: int | None = None  # bytes, with the page cache
    memory_working_set: int | None = None  # usage without inactive files
    memory_rss: int | None = None  # anonymous memory
    page_faults: int | None = None  # since the cgroup was created
    major_page_faults: int | None = None  # since the cgroup was created
    swap_available: int | None = None  # None without a limit
    swap_usage: int | None = None  # bytes
    processes: int | None = None  # in the cgroup itself
    cpu_pressure: Pressure | None = None  # PSI of the CPU
    memory_pressure: Pressure | None = None  # PSI of memory
    io_pressure: Pressure | None = None  # PSI of block devices


class FilesystemUsage(Struct, frozen=True, kw_only=True):
    """A filesystem, or the part of it that files use (`used`, `inodes_used`)."""

    time: float  # of the reading
    available: int | None = None  # bytes that an ordinary user can use
    capacity: int | None = None  # bytes
    used: int | None = None  # bytes
    inodes: int | None = None  # number of inodes
    inodes_free: int | None = None  # number
    inodes_used: int | None = None  # number


def filesystem_usage(
    time: float, *, block: int, blocks: int, free: int, available: int, inodes: int, inodes_free: int
) -> FilesystemUsage:
    """Return the figures of a filesystem from those of statvfs. `block`: bytes of one block; `available`: blocks that
    are free for users other than root. Each figure is limited to 0 … `MAX_AMOUNT`."""

    def limited(number: int) -> int:
        return max(0, min(number, MAX_AMOUNT))

    return FilesystemUsage(
        time=time,
        available=limited(block * available),
        capacity=limited(block * blocks),
        used=limited(block * (blocks - free)),
        inodes=limited(inodes),
        inodes_free=limited(inodes_free),
        inodes_used=limited(inodes - inodes_free),
    )


class InterfaceUsage(Struct, frozen=True, kw_only=True):
    """Counters of one network interface since it was created."""

    name: str  # of the interface
    rx_bytes: int  # received
    rx_errors: int  # errors in receiving
    tx_bytes: int  # sent
    tx_errors: int  # errors in sending
    rx_packets: int = 0  # received
    rx_dropped: int = 0  # received and dropped
    tx_packets: int = 0  # sent
    tx_dropped: int = 0  # dropped instead of sent


class NetworkUsage(Struct, frozen=True, kw_only=True):
    """The interfaces of one network namespace, without loopback and the node's ends of pods' interfaces."""

    time: float  # of the reading
    interfaces: tuple[InterfaceUsage, ...] = ()  # without loopback and the node's ends of pods' interfaces


class ContainerUsage(Struct, frozen=True, kw_only=True):
    """One running container of a pod; of several of one name the newest."""

    id: str  # bare CRI container id
    name: str  # of the container
    created_at: int  # nanoseconds since the epoch, by the runtime
    cgroup: CgroupUsage | None = None  # its usage
    rootfs: FilesystemUsage | None = None  # `used`: the writable layer; the rest: its filesystem
    logs: FilesystemUsage | None = None  # `used`: the log files; the rest: the root directory's filesystem


class VolumeUsage(Struct, frozen=True, kw_only=True):
    """One mounted volume of a pod."""

    name: str  # in the pod's spec
    filesystem: FilesystemUsage  # what its files use, and have left
    ephemeral: bool = False  # its files count as the pod's ephemeral storage
    claim: str = ""  # name of its PersistentVolumeClaim; "" = of another kind
    abnormal: bool | None = None  # whether its CSI driver reports that it is damaged; None = the driver reports nothing


class PodUsage(Struct, frozen=True, kw_only=True):
    """A pod with a running container."""

    uid: str  # pod UID
    name: str  # name of the pod
    namespace: str  # namespace of the pod
    created_at: int  # nanoseconds since the epoch: the newest sandbox, by the runtime
    read_at: float  # CLOCK_MONOTONIC seconds at the begin of the reading of its cgroups
    cgroup: CgroupUsage | None = None  # the pod's own; without one the sums over its containers
    network: NetworkUsage | None = None  # None with the node's network
    processes: int | None = None  # in all its containers
    containers: tuple[ContainerUsage, ...] = ()  # its running containers
    volumes: tuple[VolumeUsage, ...] = ()  # its mounted volumes
    ephemeral_storage: FilesystemUsage | None = None  # `used`: writable layers, logs, ephemeral volumes, etc-hosts


class SystemContainerUsage(Struct, frozen=True, kw_only=True):
    """A cgroup of the node: `pods` (kubepods), `kubelet`, `runtime` or `misc`."""

    name: str  # `pods` (kubepods), `kubelet`, `runtime` or `misc`
    created_at: float  # wall clock seconds since the epoch
    cgroup: CgroupUsage  # its usage


class NodeUsage(Struct, frozen=True, kw_only=True):
    """Stream `node.usage`, key `node`: the machine and its filesystems (node.md 5.1, 7.4)."""

    read_at: float  # CLOCK_MONOTONIC seconds at the begin of the reading
    started_at: float  # wall clock seconds of the machine's boot
    cgroup: CgroupUsage  # the root cgroup; memory and swap available: of what the machine has
    memory_capacity: int | None = None  # bytes
    pids_max: int | None = None  # most tasks of the machine
    pids_current: int | None = None  # tasks of the machine
    network: NetworkUsage | None = None  # interfaces of the node
    nodefs: FilesystemUsage | None = None  # of the root directory
    imagefs: FilesystemUsage | None = None  # `used`: the images
    containerfs: FilesystemUsage | None = None  # of writable layers
    nodefs_device: str = ""  # "" = not known
    imagefs_device: str = ""  # of images
    containerfs_device: str = ""  # of writable layers; "" = that of images
    # cgroups of the node other than those of pods and containers
    system_containers: tuple[SystemContainerUsage, ...] = ()


class GetUsage(Struct, frozen=True, kw_only=True):
    """Request to pleg: a reading of the node and, with `pods`, of every pod.

    Cgroups and filesystems were read at most `max_age_seconds` before it came. Files of pods (writable layers, logs,
    volumes) are measured again where their figure is older than `max_age_files_seconds`; None = the last figure will
    do. Of files that take longer than 3 s to measure it is the one before or what is counted so far, whichever is more,
    or absent.
    """

    max_age_seconds: float = 15.0  # cgroups and filesystems are read again where the last reading is older
    # writable layers, logs and volumes are measured again where the last figure is older; None = the last figure will
    # do. Of files that take longer than 3 s to measure it is the one before or what is counted so far, whichever is
    # more, or None
    max_age_files_seconds: float | None = None
    pods: bool = True  # whether the usage of every pod is requested, too


class FoundUsage(Struct, frozen=True, kw_only=True):
    """Answer to GetUsage."""

    node: NodeUsage  # the machine and its filesystems
    pods: tuple[PodUsage, ...] = ()  # each pod with a running container; empty unless requested
    complete: bool = False  # the pods of the runtime were listed: one without a usage has no running container
