"""Reads the facts of this node: addresses, memory, huge pages, the host's resolv.conf and hosts file."""

import os
import platform
import re
from pathlib import Path

from bus.messages.podsync import NodeResources
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.cgroups.node_cgroup import PODS, NodeCapacity, kubepods_values
from services.podsync.core.cri.user_namespaces import BLOCK
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.node.node_resources import Machine, Reservations, node_resources
from services.podsync.core.pod.gated_fields import RESIZE_MEMORY_VOLUMES, gates_off
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.config.nested import value_of
from shared.host.machine import architecture, default_route_addresses, meminfo
from shared.host.selinux import selinux_enabled
from shared.model.frozen_copy import replace
from shared.version import is_since

_MAX_RESOLV_CONF_BYTES = 10 << 20  # the rest of a larger file is not read
# The feature gates that `shared/podspec/gated.py` knows.
_FIELD_GATES = (
    "AtomicWriteVolumeUserFields",
    "ContainerStopSignals",
    "EmptyDirVolumeMode",
    "GRPCContainerProbeTLS",
    "H2CContainerProbe",
    "VolumeBindMountOptions",
)
_KERNEL = re.compile(r"(\d+)\.(\d+)")
_SIZES = {2048: "2MB", 1048576: "1GB", 64: "64KB", 32768: "32MB", 16384: "16MB", 512: "512KB"}


def read_node_facts(config: EffectiveConfig, resources: NodeResources, *, cgroup_v2: bool) -> NodeFacts:
    """Read the facts that stay the same while the process runs; `with_host_files` adds those that may change."""
    memory_qos = cgroup_v2 and enabled(config.feature_gates, "MemoryQoS")
    return NodeFacts(
        node_name=config.node_name,
        node_ips=concrete_ips(config.node_ips) or _routed_address(config.node_ips),
        root_dir=config.root_dir,
        pod_logs_dir=config.pod_logs_dir,
        release=config.emulated_version,
        cluster_dns=config.cluster_dns,
        cluster_domain=config.cluster_domain,
        memory_capacity=meminfo().get("MemTotal", 0),
        allocatable=resources.allocatable,
        page_sizes=tuple(_page_name(size) for size in sorted(_huge_pages())),
        thermal_throttle_paths=_thermal_throttle_paths(),
        cgroup_driver=config.cgroup_driver,
        cgroup_root=config.cgroup_root,
        cgroups_per_qos=config.cgroups_per_qos,
        cgroup_v2=cgroup_v2,
        swap_controller=_swap_controller(cgroup_v2=cgroup_v2),
        limited_swap=value_of(config.document, "memorySwap.swapBehavior") == "LimitedSwap",
        swap_capacity=meminfo().get("SwapTotal", 0),
        single_process_oom_kill=_single_process_oom_kill(config, cgroup_v2=cgroup_v2),
        enforced_memory=kubepods_values(read_node_capacity(config), (PODS,)).memory_limit or 0,
        qos_reserved_memory=_qos_reserved_memory(config),
        memory_qos=memory_qos,
        resets_memory_qos=cgroup_v2 and not memory_qos and is_since(config.emulated_version, "1.37"),
        protects_memory=memory_qos and config.memory_reservation_policy == "TieredReservation",
        memory_throttling_factor=config.memory_throttling_factor,
        cpu_cfs_quota=config.cpu_cfs_quota,
        cpu_cfs_quota_period=int(config.cpu_cfs_quota_period * 1e6),
        quota_of_exclusive_cpus=not enabled(config.feature_gates, "DisableCPUQuotaWithExclusiveCPUs"),
        pod_pids_limit=config.pod_pids_limit,
        default_sysctls=config.default_pod_sysctls if enabled(config.feature_gates, "DefaultPodSysctls") else {},
        seccomp_default=config.seccomp_default,
        stop_signals=bool(config.feature_gates.get("ContainerStopSignals")),
        bind_mount_options=enabled(config.feature_gates, "VolumeBindMountOptions"),
        resizes_memory_volumes=enabled(config.feature_gates, RESIZE_MEMORY_VOLUMES),
        selinux_enabled=selinux_enabled(),
    )


def _qos_reserved_memory(config: EffectiveConfig) -> int | None:
    """Return the percent of memory that is reserved; None without the key or its feature gate."""
    text = config.qos_reserved.get("memory") if enabled(config.feature_gates, "QOSReserved") else None
    return None if text is None else int(text.rstrip("%"))


def ids_per_pod(config: EffectiveConfig) -> int:
    """Return how many user and group ids a pod with a user namespace of its own gets."""
    return int(value_of(config.document, "userNamespaces.idsPerPod") or BLOCK)


def _single_process_oom_kill(config: EffectiveConfig, *, cgroup_v2: bool) -> bool:
    configured = value_of(config.document, "singleProcessOOMKill")
    return not cgroup_v2 if configured is None else bool(configured)


def _swap_controller(*, cgroup_v2: bool) -> bool:
    """Return whether swap of containers can be limited. On v2 our own cgroup shows it, for the root has no such
    file."""
    if not cgroup_v2:
        return Path("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists()
    own = next((line[3:] for line in _text("/proc/self/cgroup").splitlines() if line.startswith("0::")), "/")
    return Path(f"/sys/fs/cgroup{own}/memory.swap.max").exists()


def read_node_resources(config: EffectiveConfig) -> NodeResources:
    """Read capacity and allocatable of this machine under this configuration."""
    machine = Machine(
        cpus=os.cpu_count() or 1,
        memory=meminfo().get("MemTotal", 0),
        storage=_storage_capacity(Path(config.root_dir)),
        hugepages={size * 1024: count for size, count in _huge_pages().items()},
    )
    reserved = Reservations(
        max_pods=config.max_pods,
        pods_per_core=config.pods_per_core,
        system_reserved=config.system_reserved,
        kube_reserved=config.kube_reserved,
        eviction_hard=config.eviction_hard,
        storage_isolation=config.local_storage_capacity_isolation,
    )
    return node_resources(machine, reserved)


def read_node_capacity(config: EffectiveConfig) -> NodeCapacity:
    """Read what the limits of kubepods follow from: capacity, and what is reserved."""
    limits = [int(_text(f"/proc/sys/kernel/{name}").strip() or 0) for name in ("pid_max", "threads-max")]
    return NodeCapacity(
        cpus=os.cpu_count() or 1,
        memory=meminfo().get("MemTotal", 0),
        pids=min(limits),
        hugepages={_page_name(size): size * 1024 * count for size, count in _huge_pages().items()},
        cpu_list=_text("/sys/devices/system/cpu/online").strip(),
        reserved=(config.system_reserved, config.kube_reserved),
    )


def read_huge_pages(config: EffectiveConfig) -> int:
    """Read how many bytes of the memory are reserved for huge pages, which thresholds of eviction leave out with their
    feature gate; 0 = none, or the gate is off."""
    return meminfo().get("Hugetlb", 0) if enabled(config.feature_gates, "HugepageAwareEviction") else 0


def read_machine_facts(config: EffectiveConfig, resources: NodeResources) -> MachineFacts:
    """Read what admission uses where the API server's Node is not known."""
    labels = {
        "kubernetes.io/hostname": config.node_name,
        **{f"{prefix}kubernetes.io/os": "linux" for prefix in ("", "beta.")},
        **{f"{prefix}kubernetes.io/arch": architecture() for prefix in ("", "beta.")},
        **config.node_labels,
    }
    return MachineFacts(
        node_name=config.node_name,
        labels=labels,
        taints=config.register_with_taints,
        allocatable=resources.allocatable,
        kernel=kernel_version(),
        release=config.emulated_version,
        apparmor=_text("/sys/module/apparmor/parameters/enabled").startswith("Y"),
        allowed_unsafe_sysctls=config.allowed_unsafe_sysctls,
        limited_swap=_swap_controller(cgroup_v2=True)
        and value_of(config.document, "memorySwap.swapBehavior") == "LimitedSwap",
        declares_features=enabled(config.feature_gates, "NodeDeclaredFeatures"),
        gates_off=gates_off(config.feature_gates),
        feature_gates={gate: enabled(config.feature_gates, gate) for gate in _FIELD_GATES},
    )


def kernel_version() -> tuple[int, int]:
    """Return the version of the kernel, such as (6, 1); (0, 0) where its release has no such form."""
    match = _KERNEL.match(platform.release())
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _routed_address(node_ips: tuple[str, ...]) -> tuple[str, ...]:
    """Return our address on a default route, one at most as the Node has it: IPv4 first, or IPv6 with --node-ip=::."""
    routed = sorted(default_route_addresses(), key=lambda ip: (":" in ip) != ("::" in node_ips))
    return tuple(routed[:1])


def concrete_ips(ips: tuple[str, ...]) -> tuple[str, ...]:
    """Return the addresses among --node-ip; 0.0.0.0 and :: only select the address family."""
    return tuple(ip for ip in ips if ip not in ("0.0.0.0", "::"))


def with_host_files(facts: NodeFacts, resolv_conf: str) -> NodeFacts:
    """Return the facts with the host's files as they are now; each pod gets them anew (pods.md 12.1)."""
    hosts = _text("/etc/hosts")
    if not resolv_conf:
        return replace(facts, resolv_conf=None, hosts_file=hosts)
    try:
        with Path(resolv_conf).open(errors="replace") as file:
            return replace(facts, resolv_conf=file.read(_MAX_RESOLV_CONF_BYTES), hosts_file=hosts)
    except OSError as error:
        why = f"open {resolv_conf}: {(error.strerror or str(error)).lower()}"
        return replace(facts, resolv_conf_error=why, hosts_file=hosts)


class HostFiles:
    """Adds the host's files to facts as `with_host_files` does, and reads them again only where they changed."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._read: NodeFacts | None = None

    def add_to(self, facts: NodeFacts, resolv_conf: str) -> NodeFacts:
        """Return the facts with the host's files as they are now."""
        seen = (facts, _version("/etc/hosts"), _version(resolv_conf))
        if self._read is None or seen != self._seen or None in seen:
            self._read, self._seen = with_host_files(facts, resolv_conf), seen
        return self._read


def _version(path: str) -> tuple[int, ...] | None:
    """Return values that change when the file is written or replaced; None = not known, () = no path is configured."""
    if not path:
        return ()
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _storage_capacity(directory: Path) -> int:
    """Return the bytes of the filesystem that the directory is, or will be, on; 0 = not known."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    try:
        filesystem = os.statvfs(directory)
    except OSError:
        return 0
    return filesystem.f_blocks * filesystem.f_frsize


def _huge_pages() -> dict[int, int]:
    """Read how many huge pages there are of each size in KiB."""
    return {
        int(directory.name[10:-2]): int(_text(str(directory / "nr_hugepages")).strip() or 0)
        for directory in Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")
    }


def _page_name(kibibytes: int) -> str:
    """Return the size as the kernel writes it in the file names of the hugetlb controller."""
    return _SIZES.get(kibibytes, f"{kibibytes}KB")


def _thermal_throttle_paths() -> tuple[str, ...]:
    return tuple(sorted(str(p) for p in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")))
