"""The request for every number of every cgroup that /metrics/cadvisor shows, and its answer. Answered by pleg.

Sizes are bytes; None = the host does not offer it, it is not limited, or it cannot be read.
"""

from msgspec import Struct

from bus.messages.usage import CgroupUsage, FilesystemUsage, NetworkUsage


class DeviceIo(Struct, frozen=True, kw_only=True):
    """What one cgroup has read from and written to one block device."""

    device: str  # /dev/sda; major:minor where it has no name
    major: int  # number of the device
    minor: int  # number of the device
    read_bytes: int = 0  # since the cgroup was created
    written_bytes: int = 0  # since the cgroup was created
    reads: int = 0  # operations since the cgroup was created
    writes: int = 0  # operations since the cgroup was created


class CgroupDetails(Struct, frozen=True, kw_only=True):
    """One cgroup: of a container, a pod sandbox, a pod, a QoS class, kubepods, or the root."""

    id: str  # path in the hierarchy, / = the root
    usage: CgroupUsage  # CPU, memory, swap, processes and PSI
    created_at: float  # wall clock seconds since the epoch
    name: str = ""  # CRI id; empty for what is neither a container nor a sandbox
    image: str = ""  # of the container
    pod: str = ""  # name of the pod
    namespace: str = ""  # of the pod
    container: str = ""  # empty for a sandbox
    cpu_user_nanoseconds: int | None = None  # CPU time in user mode
    cpu_system_nanoseconds: int | None = None  # CPU time in the kernel
    cpu_periods: int | None = None  # periods of CFS that have passed
    cpu_throttled_periods: int | None = None  # periods in which it was throttled
    cpu_throttled_nanoseconds: int | None = None  # time for which it was throttled
    cpu_burst_periods: int | None = None  # periods in which it used more than its quota
    cpu_burst_nanoseconds: int | None = None  # CPU time used above the quota in such periods
    cpu_quota: int | None = None  # microseconds per period; None = no limit
    cpu_period: int | None = None  # microseconds
    cpu_shares: int | None = None  # as cgroup v1 counts them
    memory_cache: int | None = None  # bytes of the page cache
    memory_mapped_file: int | None = None  # bytes of mapped files
    memory_kernel: int | None = None  # bytes that the kernel uses for it
    memory_active_file: int | None = None  # bytes
    memory_inactive_file: int | None = None  # bytes
    memory_max_usage: int | None = None  # bytes, the most so far
    memory_fail_count: int | None = None  # how often the limit was met
    memory_limit: int | None = None  # bytes
    memory_reservation: int | None = None  # bytes
    swap_limit: int | None = None  # v1: of memory and swap together
    oom_kills: int | None = None  # processes that the kernel killed because memory was used up
    threads: int | None = None  # number
    threads_max: int | None = None  # number that is permitted
    open_files_limit: int | None = None  # soft limit of its first process
    io: tuple[DeviceIo, ...] = ()  # of each block device that it has used
    network: NetworkUsage | None = None  # of a sandbox with a network of its own, and of the root


class HostFilesystem(Struct, frozen=True, kw_only=True):
    """One filesystem of the node."""

    device: str  # path of the block device, or the type of a filesystem without one
    usage: FilesystemUsage  # how full it is


class MachineInfo(Struct, frozen=True, kw_only=True):
    """The machine, as far as it does not change; an id is empty where it is not known."""

    cores: int  # logical processors
    physical_cores: int  # number
    sockets: int  # number
    memory: int  # bytes
    swap: int  # bytes
    machine_id: str  # /etc/machine-id
    system_uuid: str  # of the firmware
    boot_id: str  # changes with every boot
    kernel_version: str  # as `uname -r` shows it
    os_version: str  # PRETTY_NAME of os-release


class GetCgroups(Struct, frozen=True, kw_only=True):
    """Request to pleg: the node's cgroups and, with `pods`, all of pods, read at most `max_age_seconds` ago."""

    max_age_seconds: float = 10.0  # cgroups are read again where the last reading is older
    pods: bool = True  # whether those of pods, sandboxes and containers are requested, too


class FoundCgroups(Struct, frozen=True, kw_only=True):
    """Answer to GetCgroups."""

    machine: MachineInfo  # what does not change while it runs
    cgroups: tuple[CgroupDetails, ...]  # of each container, sandbox, pod, QoS class, of kubepods and of the root
    filesystems: tuple[HostFilesystem, ...] = ()  # each filesystem of the node
