"""Parses the numbers of one cgroup, v1 or v2, that /metrics/cadvisor shows (node.md 7.4, 9.4). Pure."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from services.pleg.core.cgroup_values import UNLIMITED, key_numbers, number

MICROSECOND = 1000  # nanoseconds
# cpu.weight of v2 from 1 to 10000 corresponds to cpu.shares of v1 from 2 to 262144.
_SHARES, _WEIGHTS = (2, 262144), (1, 10000)

Read = Callable[[str], bytes | None]  # reads a file of the cgroup by its name
Numbers = dict[str, int | None]  # fields of bus.messages.cgroup_details.CgroupDetails


class DeviceNumbers(Struct, frozen=True):
    """Has the I/O of one cgroup on the block device with these numbers."""

    major: int
    minor: int
    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0


def v1_details(read: Mapping[str, Read], memory_stat: Mapping[str, int]) -> Numbers:
    """Return the numbers on v1; `read`: by controller, for those that are mounted."""
    cpu, cpuacct, memory, pids = (read.get(name, _nothing) for name in ("cpu", "cpuacct", "memory", "pids"))
    throttling = key_numbers(cpu("cpu.stat"))
    quota = number(cpu("cpu.cfs_quota_us"))
    return {
        "cpu_user_nanoseconds": number(cpuacct("cpuacct.usage_user")),
        "cpu_system_nanoseconds": number(cpuacct("cpuacct.usage_sys")),
        "cpu_periods": throttling.get("nr_periods"),
        "cpu_throttled_periods": throttling.get("nr_throttled"),
        "cpu_throttled_nanoseconds": throttling.get("throttled_time"),
        "cpu_burst_periods": throttling.get("nr_bursts"),
        "cpu_burst_nanoseconds": throttling.get("burst_time"),
        "cpu_quota": quota if quota is not None and quota > 0 else None,
        "cpu_period": number(cpu("cpu.cfs_period_us")),
        "cpu_shares": number(cpu("cpu.shares")),
        "memory_cache": memory_stat.get("total_cache"),
        "memory_mapped_file": memory_stat.get("total_mapped_file"),
        "memory_kernel": number(memory("memory.kmem.usage_in_bytes")),
        "memory_active_file": memory_stat.get("total_active_file"),
        "memory_inactive_file": memory_stat.get("total_inactive_file"),
        "memory_max_usage": number(memory("memory.max_usage_in_bytes")),
        "memory_fail_count": number(memory("memory.failcnt")),
        "memory_limit": _limit(memory("memory.limit_in_bytes")),
        "memory_reservation": _limit(memory("memory.soft_limit_in_bytes")),
        "swap_limit": _limit(memory("memory.memsw.limit_in_bytes")),
        "oom_kills": key_numbers(memory("memory.oom_control")).get("oom_kill"),
        "threads": number(pids("pids.current")),
        "threads_max": number(pids("pids.max")),
    }


def v2_details(read: Read, memory_stat: Mapping[str, int]) -> Numbers:
    """Return the numbers on v2."""
    cpu, events = key_numbers(read("cpu.stat")), key_numbers(read("memory.events"))
    quota, _, period = (read("cpu.max") or b"").partition(b" ")
    return {
        "cpu_user_nanoseconds": _nanoseconds(cpu.get("user_usec")),
        "cpu_system_nanoseconds": _nanoseconds(cpu.get("system_usec")),
        "cpu_periods": cpu.get("nr_periods"),
        "cpu_throttled_periods": cpu.get("nr_throttled"),
        "cpu_throttled_nanoseconds": _nanoseconds(cpu.get("throttled_usec")),
        "cpu_burst_periods": cpu.get("nr_bursts"),
        "cpu_burst_nanoseconds": _nanoseconds(cpu.get("burst_usec")),
        "cpu_quota": number(quota),
        "cpu_period": number(period),
        "cpu_shares": _shares(number(read("cpu.weight"))),
        "memory_cache": memory_stat.get("file"),
        "memory_mapped_file": memory_stat.get("file_mapped"),
        "memory_kernel": memory_stat.get("kernel"),
        "memory_active_file": memory_stat.get("active_file"),
        "memory_inactive_file": memory_stat.get("inactive_file"),
        "memory_max_usage": number(read("memory.peak")),
        "memory_fail_count": events.get("max"),
        "memory_limit": _limit(read("memory.max")),
        "memory_reservation": _limit(read("memory.low")) or None,
        "swap_limit": _limit(read("memory.swap.max")),
        "oom_kills": events.get("oom_kill"),
        "threads": number(read("pids.current")),
        "threads_max": number(read("pids.max")),
    }


def v1_io(of_bytes: bytes | None, of_operations: bytes | None) -> tuple[DeviceNumbers, ...]:
    """Parse the lines `8:0 Read 4096` of two files of the blkio controller."""
    devices: dict[tuple[int, int], dict[str, int]] = {}
    names = {b"Read": ("read_bytes", "reads"), b"Write": ("written_bytes", "writes")}
    for index, text in enumerate((of_bytes, of_operations)):
        for line in (text or b"").splitlines():
            fields = line.split()
            if len(fields) != 3 or fields[1] not in names or not fields[2].isdigit():
                continue
            if (device := _device(fields[0])) is not None:
                devices.setdefault(device, {})[names[fields[1]][index]] = int(fields[2])
    return tuple(DeviceNumbers(*device, **numbers) for device, numbers in devices.items())


def v2_io(text: bytes | None) -> tuple[DeviceNumbers, ...]:
    """Parse the lines `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 …` of io.stat."""
    names = {b"rbytes": "read_bytes", b"wbytes": "written_bytes", b"rios": "reads", b"wios": "writes"}
    devices = []
    for line in (text or b"").splitlines():
        first, *fields = line.split() or [b""]
        pairs = [field.partition(b"=") for field in fields]
        numbers = {names[key]: int(value) for key, _, value in pairs if key in names and value.isdigit()}
        if (device := _device(first)) is not None and numbers:
            devices.append(DeviceNumbers(*device, **numbers))
    return tuple(devices)


def _device(text: bytes) -> tuple[int, int] | None:
    major, _, minor = text.partition(b":")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _nothing(_: str) -> None:
    return None


def _limit(text: bytes | None) -> int | None:
    limit = number(text)
    return None if limit is None or limit > UNLIMITED else limit


def _nanoseconds(microseconds: int | None) -> int | None:
    return None if microseconds is None else microseconds * MICROSECOND


def _shares(weight: int | None) -> int | None:
    if weight is None:
        return None
    span = (_SHARES[1] - _SHARES[0]) / (_WEIGHTS[1] - _WEIGHTS[0])
    return round(_SHARES[0] + (weight - _WEIGHTS[0]) * span)
