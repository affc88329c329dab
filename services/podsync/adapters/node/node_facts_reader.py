"""Reads what this node is: addresses, memory, huge pages, the host's resolv.conf and hosts file."""

import os
import platform
import re
from dataclasses import replace
from pathlib import Path

from bus.messages.podsync import NodeResources
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.cgroups.node_cgroup import PODS, NodeCapacity, kubepods_values
from services.podsync.core.cri.user_namespaces import BLOCK
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.node.node_resources import Machine, Reservations, node_resources
from services.podsync.core.pod.gated_fields import gates_off
from shared.config.effective import EffectiveConfig
from shared.config.gate_table import enabled
from shared.config.nested import value_of
from shared.host.machine import architecture, default_route_addresses, meminfo
from shared.host.selinux import selinux_enabled

_LARGEST_RESOLV_CONF = 10 << 20  # bytes, of which the rest is not read
_SIZES = {2048: "2MB", 1048576: "1GB", 64: "64KB", 32768: "32MB", 16384: "16MB", 512: "512KB"}


def read_node_facts(config: EffectiveConfig, resources: NodeResources, *, cgroup_v2: bool) -> NodeFacts:
    """The facts that stay while the process runs; `with_host_files` adds those that may change."""
    memory_qos = cgroup_v2 and enabled(config.feature_gates, "MemoryQoS")
    return NodeFacts(
        node_name=config.node_name,
        node_ips=concrete_ips(config.node_ips) or default_route_addresses(),
        root_dir=config.root_dir,
        pod_logs_dir=config.pod_logs_dir,
        cluster_dns=config.cluster_dns,
        cluster_domain=config.cluster_domain,
        memory_capacity=meminfo().get("MemTotal", 0),
        allocatable=resources.allocatable,
        page_sizes=_page_sizes(),
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
        protects_memory=memory_qos and config.memory_reservation_policy == "TieredReservation",
        memory_throttling_factor=config.memory_throttling_factor,
        cpu_cfs_quota=config.cpu_cfs_quota,
        cpu_cfs_quota_period=int(config.cpu_cfs_quota_period * 1e6),
        pod_pids_limit=config.pod_pids_limit,
        seccomp_default=config.seccomp_default,
        stop_signals=bool(config.feature_gates.get("ContainerStopSignals")),
        selinux_enabled=selinux_enabled(),
    )


def _qos_reserved_memory(config: EffectiveConfig) -> int | None:
    """Percent; None without the key or its feature gate."""
    text = config.qos_reserved.get("memory") if enabled(config.feature_gates, "QOSReserved") else None
    return None if text is None else int(text.rstrip("%"))


def ids_per_pod(config: EffectiveConfig) -> int:
    """How many user and group ids a pod with a user namespace of its own gets."""
    return int(value_of(config.document, "userNamespaces.idsPerPod") or BLOCK)


def _single_process_oom_kill(config: EffectiveConfig, *, cgroup_v2: bool) -> bool:
    configured = value_of(config.document, "singleProcessOOMKill")
    return not cgroup_v2 if configured is None else bool(configured)


def _swap_controller(*, cgroup_v2: bool) -> bool:
    """Whether swap of containers can be limited. On v2 our own cgroup shows it, for the root never has the file."""
    if not cgroup_v2:
        return Path("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists()
    own = next((line[3:] for line in _text("/proc/self/cgroup").splitlines() if line.startswith("0::")), "/")
    return Path(f"/sys/fs/cgroup{own}/memory.swap.max").exists()


def read_node_resources(config: EffectiveConfig) -> NodeResources:
    """Capacity and allocatable of this machine under this configuration."""
    pages = {
        int(d.name[10:-2]) * 1024: int(_text(str(d / "nr_hugepages")).strip() or 0)
        for d in Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")
    }
    machine = Machine(
        cpus=os.cpu_count() or 1,
        memory=meminfo().get("MemTotal", 0),
        storage=_storage_capacity(Path(config.root_dir)),
        hugepages=pages,
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
    """What kubepods is made of: capacity, and what is kept from pods."""
    pools = {
        _page_name(int(d.name[10:-2])): int(d.name[10:-2]) * 1024 * int(_text(str(d / "nr_hugepages")).strip() or 0)
        for d in Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")
    }
    limits = [int(_text(f"/proc/sys/kernel/{name}").strip() or 0) for name in ("pid_max", "threads-max")]
    return NodeCapacity(
        cpus=os.cpu_count() or 1,
        memory=meminfo().get("MemTotal", 0),
        pids=min(limits),
        hugepages=pools,
        cpu_list=_text("/sys/devices/system/cpu/online").strip(),
        reserved=(config.system_reserved, config.kube_reserved),
    )


def read_machine_facts(config: EffectiveConfig, resources: NodeResources) -> MachineFacts:
    """What admission goes by where the API server's Node is not known."""
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
        apparmor=_text("/sys/module/apparmor/parameters/enabled").startswith("Y"),
        allowed_unsafe_sysctls=config.allowed_unsafe_sysctls,
        limited_swap=_swap_controller(cgroup_v2=True)
        and value_of(config.document, "memorySwap.swapBehavior") == "LimitedSwap",
        declares_features=enabled(config.feature_gates, "NodeDeclaredFeatures"),
        gates_off=gates_off(config.feature_gates),
    )


def kernel_version() -> tuple[int, int]:
    """Return the version of the kernel, such as (6, 1); (0, 0) where its release has no such form."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def concrete_ips(given: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses among --node-ip; 0.0.0.0 and :: only select the address family."""
    return tuple(ip for ip in given if ip not in ("0.0.0.0", "::"))


def with_host_files(facts: NodeFacts, resolv_conf: str) -> NodeFacts:
    """The facts with the host's files as they are now; they are read again for every pod (pods.md 12.1)."""
    hosts = _text("/etc/hosts")
    if not resolv_conf:
        return replace(facts, resolv_conf=None, hosts_file=hosts)
    try:
        with Path(resolv_conf).open(errors="replace") as file:
            return replace(facts, resolv_conf=file.read(_LARGEST_RESOLV_CONF), hosts_file=hosts)
    except OSError as error:
        why = f"open {resolv_conf}: {(error.strerror or str(error)).lower()}"
        return replace(facts, resolv_conf_error=why, hosts_file=hosts)


class HostFiles:
    """`with_host_files`, reading again only what has changed since."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._read: NodeFacts | None = None

    def add_to(self, facts: NodeFacts, resolv_conf: str) -> NodeFacts:
        """The facts with the host's files as they are now."""
        seen = (facts, _version("/etc/hosts"), _version(resolv_conf))
        if self._read is None or seen != self._seen or None in seen:
            self._read, self._seen = with_host_files(facts, resolv_conf), seen
        return self._read


def _version(path: str) -> tuple[int, ...] | None:
    """What changes when a file is written or replaced; None where that is unknown. No path = no file."""
    if not path:
        return ()
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _storage_capacity(directory: Path) -> int:
    """Bytes of the filesystem the directory is, or will be, on; 0 = it cannot be read."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def _page_sizes() -> tuple[str, ...]:
    kibibytes = sorted(int(d.name[10:-2]) for d in Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB"))
    return tuple(_page_name(size) for size in kibibytes)


def _page_name(kibibytes: int) -> str:
    """As the kernel names the size in the files of the hugetlb controller."""
    return _SIZES.get(kibibytes, f"{kibibytes}KB")


def _thermal_throttle_paths() -> tuple[str, ...]:
    return tuple(sorted(str(p) for p in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")))
