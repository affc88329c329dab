"""Decides the text of each file of a cgroup from its values, on v1 and on v2 (node.md 4.2, 4.3). Writes no file."""

from collections.abc import Iterable

from msgspec import Struct

from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.podspec.resources import weight

DEFAULT_PERIOD_MICROSECONDS = 100_000


class FileText(Struct, frozen=True, kw_only=True):
    """Has one file to write. `controller`: the controller it belongs to, which on v1 also selects the hierarchy."""

    controller: str
    file: str
    text: str
    if_present: bool = False  # a kernel without the file is no error
    read_back: bool = False  # the kernel may take another number than it was given, which is an error


def v1_files(values: CgroupValues, page_sizes: Iterable[str]) -> list[FileText]:
    """Return the files for a host with a hierarchy for each controller. A page size (`2MB`) without a limit gets 0."""
    files: list[FileText] = []
    if values.cpuset_cpus:
        files.append(FileText(controller="cpuset", file="cpuset.cpus", text=values.cpuset_cpus))
    if values.memory_limit:
        files.append(FileText(controller="memory", file="memory.limit_in_bytes", text=str(values.memory_limit)))
    if values.cpu_shares:
        files.append(FileText(controller="cpu", file="cpu.shares", text=str(values.cpu_shares), read_back=True))
    if values.cpu_period:
        files.append(FileText(controller="cpu", file="cpu.cfs_period_us", text=str(values.cpu_period)))
    if values.cpu_quota:
        files.append(FileText(controller="cpu", file="cpu.cfs_quota_us", text=str(values.cpu_quota)))
    if values.pids_limit is not None:
        files.append(FileText(controller="pids", file="pids.max", text=_pids(values.pids_limit)))
    return files + _huge_pages(values, page_sizes, "limit_in_bytes")


def v2_files(values: CgroupValues, page_sizes: Iterable[str]) -> list[FileText]:
    """Return the files for a host with the unified hierarchy. A page size (`2MB`) without a limit gets 0."""
    files: list[FileText] = []
    if values.cpuset_cpus:
        files.append(FileText(controller="cpuset", file="cpuset.cpus", text=values.cpuset_cpus))
    if values.memory_limit:
        text = "max" if values.memory_limit < 0 else str(values.memory_limit)
        files.append(FileText(controller="memory", file="memory.max", text=text))
    for file, amount in (("memory.min", values.memory_min), ("memory.low", values.memory_low)):
        if amount is not None:
            files.append(FileText(controller="memory", file=file, text=str(amount)))
    if values.cpu_shares:
        files.append(FileText(controller="cpu", file="cpu.weight", text=str(weight(values.cpu_shares))))
    if values.cpu_quota or values.cpu_period:
        quota = str(values.cpu_quota) if (values.cpu_quota or 0) > 0 else "max"
        files.append(
            FileText(
                controller="cpu", file="cpu.max", text=f"{quota} {values.cpu_period or DEFAULT_PERIOD_MICROSECONDS}"
            )
        )
    if values.pids_limit is not None:
        files.append(FileText(controller="pids", file="pids.max", text=_pids(values.pids_limit)))
    return files + _huge_pages(values, page_sizes, "max")


def _pids(limit: int) -> str:
    return "max" if limit < 0 else str(limit or 1)


def _huge_pages(values: CgroupValues, page_sizes: Iterable[str], ending: str) -> list[FileText]:
    """Return the files with a limit of the pages in use and, where the kernel has it, of reserved pages."""
    limits = dict.fromkeys(page_sizes, 0) | dict(values.hugepage_limits)
    files: list[FileText] = []
    for size, limit in limits.items():
        for kind, optional in ((size, False), (f"{size}.rsvd", True)):
            file = f"hugetlb.{kind}.{ending}"
            files.append(FileText(controller="hugetlb", file=file, text=str(limit), if_present=optional))
    return files
