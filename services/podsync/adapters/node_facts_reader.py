"""Reads what this node is: addresses, memory, huge pages, the host's resolv.conf and hosts file."""

import os
import platform
import socket
from dataclasses import replace
from pathlib import Path

from bus.messages.podsync import NodeResources
from services.podsync.core.node_facts import NodeFacts
from services.podsync.core.node_resources import Machine, Reservations, node_resources
from services.podsync.core.node_view import MachineFacts
from shared.config.effective import EffectiveConfig

_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_SIZES = {2048: "2MB", 1048576: "1GB", 64: "64KB", 32768: "32MB", 16384: "16MB", 512: "512KB"}


def read_node_facts(config: EffectiveConfig, *, cgroup_v2: bool) -> NodeFacts:
    """The facts that stay while the process lives; `with_host_files` adds those that may change."""
    return NodeFacts(
        node_name=config.node_name,
        node_ips=concrete_ips(config.node_ips) or node_addresses(),
        root_dir=config.root_dir,
        pod_logs_dir=config.pod_logs_dir,
        cluster_dns=config.cluster_dns,
        cluster_domain=config.cluster_domain,
        memory_capacity=_memory_capacity(),
        allocatable=read_node_resources(config).allocatable,
        page_sizes=_page_sizes(),
        thermal_throttle_paths=_thermal_throttle_paths(),
        cgroup_driver=config.cgroup_driver,
        cgroup_root=config.cgroup_root,
        cgroups_per_qos=config.cgroups_per_qos,
        cgroup_v2=cgroup_v2,
        swap_controller=cgroup_v2 and Path("/sys/fs/cgroup/memory.swap.max").exists(),
        cpu_cfs_quota=config.cpu_cfs_quota,
        cpu_cfs_quota_period=int(config.cpu_cfs_quota_period * 1e6),
        pod_pids_limit=config.pod_pids_limit,
        seccomp_default=config.seccomp_default,
    )


def read_node_resources(config: EffectiveConfig) -> NodeResources:
    """Capacity and allocatable of this machine under this configuration."""
    pages = {
        int(d.name[10:-2]) * 1024: int(_text(str(d / "nr_hugepages")).strip() or 0)
        for d in Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")
    }
    machine = Machine(
        cpus=os.cpu_count() or 1,
        memory=_memory_capacity(),
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


def read_machine_facts(config: EffectiveConfig) -> MachineFacts:
    """What admission goes by where the API server's Node is not known."""
    release = platform.release().split(".")
    kernel = (int(release[0]), int("".join(c for c in release[1] if c.isdigit()) or 0)) if len(release) > 1 else (0, 0)
    arch = _GO_ARCHITECTURES.get(platform.machine(), platform.machine())
    labels = {
        "kubernetes.io/hostname": config.node_name,
        **{f"{prefix}kubernetes.io/os": "linux" for prefix in ("", "beta.")},
        **{f"{prefix}kubernetes.io/arch": arch for prefix in ("", "beta.")},
        **config.node_labels,
    }
    return MachineFacts(
        node_name=config.node_name,
        labels=labels,
        taints=config.register_with_taints,
        allocatable=read_node_resources(config).allocatable,
        kernel=kernel,
        apparmor=_text("/sys/module/apparmor/parameters/enabled").startswith("Y"),
        allowed_unsafe_sysctls=config.allowed_unsafe_sysctls,
    )


def concrete_ips(given: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses among --node-ip; 0.0.0.0 and :: only say which family is wanted."""
    return tuple(ip for ip in given if ip not in ("0.0.0.0", "::"))


def with_host_files(facts: NodeFacts, resolv_conf: str) -> NodeFacts:
    """The facts with the host's files as they are now; they are read again for every pod (reference pods.md 12.1)."""
    hosts = _text("/etc/hosts")
    if not resolv_conf:
        return replace(facts, resolv_conf=None, hosts_file=hosts)
    try:
        return replace(facts, resolv_conf=Path(resolv_conf).read_text(errors="replace"), hosts_file=hosts)
    except OSError as error:
        why = f"open {resolv_conf}: {(error.strerror or str(error)).lower()}"
        return replace(facts, resolv_conf_error=why, hosts_file=hosts)


def node_addresses() -> tuple[str, ...]:
    """The addresses that the default routes would use, IPv4 first; () on a machine without one. Sends nothing."""
    found = []
    for family, remote in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((remote, 9))
                found.append(str(probe.getsockname()[0]))
            except OSError:
                continue
    return tuple(ip for ip in found if not ip.startswith(("127.", "::1", "fe80:")))


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


def _memory_capacity() -> int:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _page_sizes() -> tuple[str, ...]:
    kibibytes = sorted(int(d.name[10:-2]) for d in Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB"))
    return tuple(_SIZES.get(size, f"{size}KB") for size in kibibytes)


def _thermal_throttle_paths() -> tuple[str, ...]:
    return tuple(sorted(str(p) for p in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")))
