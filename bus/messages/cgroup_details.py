"""The request for every number of every cgroup that /metrics/cadvisor shows, and its answer. Answered by pleg.

Sizes are bytes; None = the host does not offer it, it is not limited, or it cannot be read.
"""

from dataclasses import dataclass

from bus.messages.usage import CgroupUsage, FilesystemUsage, NetworkUsage


@dataclass(frozen=True, kw_only=True)
class DeviceIo:
    """What one cgroup has read from and written to one block device."""

    device: str  # /dev/sda; major:minor where it has no name
    major: int
    minor: int
    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, kw_only=True)
class CgroupDetails:
    """One cgroup: of a container, a pod sandbox, a pod, a QoS class, kubepods, or the root."""

    id: str  # path in the hierarchy, / = the root
    usage: CgroupUsage
    created_at: float  # wall clock seconds since the epoch
    name: str = ""  # CRI id; empty for what is neither a container nor a sandbox
    image: str = ""
    pod: str = ""
    namespace: str = ""
    container: str = ""  # empty for a sandbox
    cpu_user_nanoseconds: int | None = None
    cpu_system_nanoseconds: int | None = None
    cpu_periods: int | None = None
    cpu_throttled_periods: int | None = None
    cpu_throttled_nanoseconds: int | None = None
    cpu_burst_periods: int | None = None
    cpu_burst_nanoseconds: int | None = None
    cpu_quota: int | None = None  # microseconds per period; None = no limit
    cpu_period: int | None = None  # microseconds
    cpu_shares: int | None = None
    memory_cache: int | None = None
    memory_mapped_file: int | None = None
    memory_kernel: int | None = None
    memory_active_file: int | None = None
    memory_inactive_file: int | None = None
    memory_max_usage: int | None = None
    memory_fail_count: int | None = None
    memory_limit: int | None = None
    memory_reservation: int | None = None
    swap_limit: int | None = None  # v1: of memory and swap together
    oom_kills: int | None = None
    threads: int | None = None
    threads_max: int | None = None
    open_files_limit: int | None = None  # soft limit of its first process
    io: tuple[DeviceIo, ...] = ()
    network: NetworkUsage | None = None  # of a sandbox with a network of its own, and of the root


@dataclass(frozen=True, kw_only=True)
class HostFilesystem:
    """One filesystem of the node."""

    device: str
    usage: FilesystemUsage


@dataclass(frozen=True, kw_only=True)
class MachineInfo:
    """The machine, as far as it does not change; an id is empty where it is not known."""

    cores: int
    physical_cores: int
    sockets: int
    memory: int
    swap: int
    machine_id: str
    system_uuid: str
    boot_id: str
    kernel_version: str
    os_version: str


@dataclass(frozen=True, kw_only=True)
class GetCgroups:
    """Request to pleg: all cgroups of pods, read at most `max_age_seconds` ago."""

    max_age_seconds: float = 10.0


@dataclass(frozen=True, kw_only=True)
class FoundCgroups:
    """Answer to GetCgroups."""

    machine: MachineInfo
    cgroups: tuple[CgroupDetails, ...]
    filesystems: tuple[HostFilesystem, ...] = ()
