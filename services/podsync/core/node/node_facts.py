"""Has the facts of this node on which CRI messages and cgroups of pods depend. An adapter reads them.
Texts of files (resolv.conf, hosts) are as they were read.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement
from shared.version import KUBERNETES_VERSION


class NodeFacts(Struct, frozen=True, kw_only=True):
    """Has one node at one moment, with what one pod was given of it. Sizes are bytes, periods microseconds. Every pod
    gets the host's files as they are then (pods.md 12.1): the caller replaces `resolv_conf` and `hosts_file` before it
    builds messages."""

    node_name: str
    node_ips: tuple[str, ...] = ()  # primary first; hostNetwork pods show them as their own
    root_dir: str = "/var/lib/kubelet"
    pod_logs_dir: str = "/var/log/pods"
    release: str = KUBERNETES_VERSION  # one of RELEASES, which the servers of hooks are told

    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    resolv_conf: str | None = None  # text of the configured file; None = resolvConf is "" (no file)
    resolv_conf_error: str = ""  # why the configured file could not be read; then no sandbox is built
    hosts_file: str = ""  # text of the node's /etc/hosts

    memory_capacity: int = 0
    allocatable: Mapping[str, str] = field(default_factory=dict)  # cpu, memory, ephemeral-storage as quantities
    page_sizes: tuple[str, ...] = ()  # of huge pages of the host, as the kernel names them, e.g. ("2MB", "1GB")
    thermal_throttle_paths: tuple[str, ...] = ()  # existing /sys/devices/system/cpu/cpu<N>/thermal_throttle

    cgroup_driver: str = "cgroupfs"  # cgroupfs | systemd
    cgroup_root: str = ""  # plain path form, e.g. /a/b
    cgroups_per_qos: bool = True
    cgroup_v2: bool = True
    swap_controller: bool = False  # whether memory.swap.max (v2) or memory.memsw.limit_in_bytes (v1) exists
    limited_swap: bool = False  # memorySwap.swapBehavior is LimitedSwap
    swap_capacity: int = 0
    single_process_oom_kill: bool = False
    enforced_memory: int = 0  # bytes of the machine without what is reserved for daemons
    qos_reserved_memory: int | None = None  # percent of requests kept from lower classes; None = gate or key not set
    memory_qos: bool = False  # gate MemoryQoS, on cgroup v2
    resets_memory_qos: bool = False  # the gate is off, and what it has left in cgroups is taken back, since 1.37
    protects_memory: bool = False  # gate MemoryQoS, with memoryReservationPolicy TieredReservation
    memory_throttling_factor: float = 0.9  # 0 = no container is throttled
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period: int = 100_000
    quota_of_exclusive_cpus: bool = False  # gate DisableCPUQuotaWithExclusiveCPUs is off
    placement: PodPlacement = NOT_PLACED  # of the pod
    shared_cpus: str = ""  # of containers without CPUs of their own, such as 0-3,8; "" = all
    pod_pids_limit: int = -1  # <= 0: none
    # of each sandbox with namespaces of its own, below the pod's own ones; normalised name -> value
    default_sysctls: Mapping[str, str] = field(default_factory=dict)

    seccomp_default: bool = False
    stop_signals: bool = False  # gate ContainerStopSignals
    bind_mount_options: bool = False  # gate VolumeBindMountOptions
    resizes_memory_volumes: bool = False  # gate InPlacePodVerticalScalingMemoryBackedVolumes
    runtime_handler: str = ""  # of the pod's RuntimeClass; the next two fields are its features
    recursive_read_only: bool = False  # the runtime handler supports recursive read-only mounts
    user_namespaces: bool = False  # the runtime handler supports user namespaces
    selinux_enabled: bool = False
