"""Reads what this node is: addresses, memory, huge pages, the host's resolv.conf and hosts file."""

import os
import socket
from dataclasses import replace
from pathlib import Path

from services.podsync.core.node_facts import NodeFacts
from shared.config.effective import EffectiveConfig

_SIZES = {2048: "2MB", 1048576: "1GB", 64: "64KB", 32768: "32MB", 16384: "16MB", 512: "512KB"}


def read_node_facts(config: EffectiveConfig, *, cgroup_v2: bool) -> NodeFacts:
    """The facts that stay while the process lives; `with_host_files` adds those that may change."""
    return NodeFacts(
        node_name=config.node_name,
        node_ips=node_addresses(),
        root_dir=config.root_dir,
        pod_logs_dir=config.pod_logs_dir,
        cluster_dns=config.cluster_dns,
        cluster_domain=config.cluster_domain,
        memory_capacity=_memory_capacity(),
        allocatable={"cpu": str(os.cpu_count() or 1), "memory": str(_memory_capacity())},
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
