"""Computes the systemd unit of a cgroup, and the properties of that slice: D-Bus name, type and value (node.md 4.3).
Pure. systemd resets at its next reload what is written only to the files.
"""

import re
from typing import Any

from services.podsync.core.cgroups.cgroup_files import DEFAULT_PERIOD_MICROSECONDS
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.host.cgroup_name import SLICE
from shared.podspec.resources import weight

Property = tuple[str, str, Any]  # name, D-Bus signature, value

INFINITY = 2**64 - 1
_SECOND = 1_000_000  # microseconds
_QUOTA_STEP = 10_000  # systemd keeps the quota of a second in steps of 10 ms
_MIN_VERSION_OF_PERIOD = 242  # of systemd
_MIN_VERSION_OF_CPUS = 244
_NUMBER = re.compile(r"\d+")


def unit_of(name: str) -> str:
    """Return the systemd unit of a cgroup's path."""
    return name.rstrip("/").rpartition("/")[2]


def parent_unit_of(name: str) -> str:
    """Return the slice above the unit of a cgroup's path; "" for a slice at the top, whose parent is the root slice."""
    unit = name.rstrip("/").rpartition("/")[0].rpartition("/")[2]
    return unit if unit.endswith(SLICE) else ""


def version_number(text: str) -> int:
    """Return 252 for `252.38-1~deb12u1` or `v252`; 0 for a text without a number."""
    match = _NUMBER.search(text)
    return int(match.group()) if match else 0


def slice_properties(name: str, *, v2: bool) -> list[Property]:
    """Return the properties that a slice has from its start, without limits. `name`: the cgroup's path."""
    above = parent_unit_of(name)
    switches = ("MemoryAccounting", "CPUAccounting", "IOAccounting" if v2 else "BlockIOAccounting", "TasksAccounting")
    return [
        ("Description", "s", f"cgroup {name}"),
        *([("Wants", "as", [above])] if above else []),
        ("DefaultDependencies", "b", False),
        *((switch, "b", True) for switch in switches),
    ]


def limit_properties(values: CgroupValues, *, v2: bool, version: int) -> list[Property]:
    """Return the values as properties of systemd. `version`: of systemd, 0 = not known, which counts as new."""
    version = version or INFINITY
    properties: list[Property] = []
    if values.memory_limit:
        properties.append(("MemoryMax" if v2 else "MemoryLimit", "t", _or_infinity(values.memory_limit)))
    for name, amount in (("MemoryMin", values.memory_min), ("MemoryLow", values.memory_low)) if v2 else ():
        if amount is not None:
            properties.append((name, "t", amount))
    if values.cpu_shares:
        share = ("CPUWeight", "t", weight(values.cpu_shares)) if v2 else ("CPUShares", "t", values.cpu_shares)
        properties.append(share)
    if values.cpu_period and version >= _MIN_VERSION_OF_PERIOD:
        properties.append(("CPUQuotaPeriodUSec", "t", values.cpu_period))
    if values.cpu_quota or values.cpu_period:
        quota = _quota_per_second(values.cpu_quota or 0, values.cpu_period or DEFAULT_PERIOD_MICROSECONDS)
        properties.append(("CPUQuotaPerSecUSec", "t", quota))
    if values.pids_limit is not None:
        properties.append(("TasksMax", "t", _or_infinity(values.pids_limit or 1)))
    if values.cpuset_cpus and version >= _MIN_VERSION_OF_CPUS:
        properties.append(("AllowedCPUs", "ay", cpu_mask(values.cpuset_cpus)))
    return properties


def cpu_mask(cpus: str) -> bytes:
    """Return a bit for each CPU of a list such as `0-3,8`, the first CPU in the lowest bit of the first byte."""
    mask = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def _quota_per_second(quota: int, period: int) -> int:
    if quota <= 0:
        return INFINITY
    return -(-(quota * _SECOND // period) // _QUOTA_STEP) * _QUOTA_STEP


def _or_infinity(limit: int) -> int:
    return INFINITY if limit < 0 else limit
