"""Parses the files of cgroups v1 and v2, and computes usage from them (node.md 7.4). Pure; bad text is skipped.
A file that could not be read is None.
"""

from collections.abc import Mapping
from math import isfinite

from msgspec import Struct

from bus.messages.usage import CgroupUsage, Pressure, PressureShare

UNLIMITED = 1 << 62  # a memory limit above this is none
NANOSECONDS_PER_MICROSECOND = 1000


class MachineMemory(Struct, frozen=True, kw_only=True):
    """Has what counts as the limits of the root cgroup, bytes; None = not known."""

    memory: int | None
    swap: int | None
    swap_usage: int | None


class CgroupFiles(Struct, frozen=True, kw_only=True):
    """Has the text of the files of one cgroup, of either version."""

    cpu: bytes | None = None  # cpuacct.usage; v2: cpu.stat
    memory_stat: bytes | None = None
    memory_usage: bytes | None = None
    memory_limit: bytes | None = None
    swap_usage: bytes | None = None  # v2 alone
    swap_limit: bytes | None = None  # v1: of memory and swap together
    processes: bytes | None = None
    pressures: tuple[bytes | None, bytes | None, bytes | None] = (None, None, None)  # cpu, memory, io; v2 alone


def v1_usage(files: CgroupFiles, time: float, machine: MachineMemory | None = None) -> CgroupUsage:
    """Return the usage in files of v1; `machine`: for the root cgroup."""
    stat = key_numbers(files.memory_stat)
    usage, working_set = number(files.memory_usage), None
    if usage is not None and "total_inactive_file" in stat:
        working_set = max(0, usage - stat["total_inactive_file"])
    swap_usage = stat.get("total_swap")
    return CgroupUsage(
        time=time,
        cpu_nanoseconds=number(files.cpu),
        memory_available=_left(machine.memory if machine else number(files.memory_limit), working_set),
        memory_usage=usage,
        memory_working_set=working_set,
        memory_rss=stat.get("total_rss"),
        page_faults=stat.get("total_pgfault"),
        major_page_faults=stat.get("total_pgmajfault"),
        swap_available=_left(machine.swap if machine else number(files.swap_limit), swap_usage),
        swap_usage=swap_usage,
        processes=_lines(files.processes),
    )


def v2_usage(files: CgroupFiles, time: float, machine: MachineMemory | None = None) -> CgroupUsage:
    """Return the usage in files of v2; `machine`: for the root cgroup, which has no usage and no limits of its own."""
    stat = key_numbers(files.memory_stat)
    usage, working_set = number(files.memory_usage), None
    if machine and "anon" in stat and "file" in stat:
        usage = stat["anon"] + stat["file"]
    if usage is not None and "inactive_file" in stat:
        working_set = max(0, usage - stat["inactive_file"])
    cpu = key_numbers(files.cpu).get("usage_usec")
    swap_usage = machine.swap_usage if machine else number(files.swap_usage)
    cpu_pressure, memory_pressure, io_pressure = map(pressure, files.pressures)
    return CgroupUsage(
        time=time,
        cpu_nanoseconds=None if cpu is None else cpu * NANOSECONDS_PER_MICROSECOND,
        memory_available=_left(machine.memory if machine else number(files.memory_limit), working_set),
        memory_usage=usage,
        memory_working_set=working_set,
        memory_rss=stat.get("anon"),
        page_faults=stat.get("pgfault"),
        major_page_faults=stat.get("pgmajfault"),
        swap_available=_left(machine.swap if machine else number(files.swap_limit), swap_usage),
        swap_usage=swap_usage,
        processes=_lines(files.processes),
        cpu_pressure=cpu_pressure,
        memory_pressure=memory_pressure,
        io_pressure=io_pressure,
    )


def number(text: bytes | None) -> int | None:
    """Return the number of a file that has only one; None for `max` and other text."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def key_numbers(text: bytes | None) -> Mapping[str, int]:
    """Return the numbers by key of lines with a key and a number; other lines are skipped."""
    numbers = {}
    for line in (text or b"").splitlines():
        key, _, value = line.partition(b" ")
        if value.isdigit() and (amount := number(value)) is not None:
            numbers[key.decode(errors="replace")] = amount
    return numbers


def pressure(text: bytes | None) -> Pressure | None:
    """Parse a PSI file; None where it has no `some` line. Kernels before 5.13 have no `full` line for the CPU."""
    shares = {}
    for line in (text or b"").decode(errors="replace").splitlines():
        kind, _, fields = line.partition(" ")
        try:
            values = dict(field.split("=", 1) for field in fields.split())
            share = PressureShare(
                total=int(values["total"]),
                avg10=float(values["avg10"]),
                avg60=float(values["avg60"]),
                avg300=float(values["avg300"]),
            )
        except (KeyError, ValueError):
            continue
        if isfinite(share.avg10 + share.avg60 + share.avg300):
            shares[kind] = share
    if "some" not in shares:
        return None
    return Pressure(some=shares["some"], full=shares.get("full", PressureShare(total=0, avg10=0, avg60=0, avg300=0)))


def _left(limit: int | None, used: int | None) -> int | None:
    if limit is None or used is None or limit > UNLIMITED:
        return None
    return max(0, limit - used)


def _lines(text: bytes | None) -> int | None:
    return None if text is None else text.count(b"\n")
