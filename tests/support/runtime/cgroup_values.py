"""Reads what the files of a cgroup have, on either version: CPU share, CPU quota, limit of memory."""

from shared.host.cgroup_layout import Hierarchies, find_hierarchies
from shared.podspec.resources import weight

TREES: Hierarchies = find_hierarchies()
NO_LIMIT = str(2**63 - 4096)  # memory, as v1 shows it


def value(cgroup: str, controller: str, v1: str, v2: str) -> str:
    """Return the text of the file of either version."""
    if TREES.unified is not None:
        return (TREES.unified / cgroup.strip("/") / v2).read_text().strip()
    return (TREES.by_controller[controller] / cgroup.strip("/") / v1).read_text().strip()


def cpu_share(cgroup: str) -> str:
    return value(cgroup, "cpu", "cpu.shares", "cpu.weight")


def share_of(cpu_shares: int) -> str:
    """Return the CPU share of so many shares, as this machine writes it."""
    return str(cpu_shares if TREES.unified is None else weight(cpu_shares))


def quota(cgroup: str) -> str:
    """Return the quota in microseconds of 100 000, "" for no limit."""
    text = value(cgroup, "cpu", "cpu.cfs_quota_us", "cpu.max").split()[0]
    return "" if text in ("-1", "max") else text


def memory(cgroup: str) -> str:
    text = value(cgroup, "memory", "memory.limit_in_bytes", "memory.max")
    return "" if text in (NO_LIMIT, "max") else text


def memory_usage(cgroup: str) -> int:
    """Return the bytes that are in use."""
    return int(value(cgroup, "memory", "memory.usage_in_bytes", "memory.current"))
