"""Forms the page of /metrics/cadvisor (node.md 9.4) from a reading of pleg's, with the names and labels that dashboards
use. Pure.

A number that the host does not offer has no sample.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from bus.messages.cgroup_details import CgroupDetails, DeviceIo, FoundCgroups, MachineInfo
from bus.messages.usage import InterfaceUsage, Pressure
from services.server.core.metrics.metrics_text import help_line, label_pairs, number
from services.server.core.metrics.runtime_metrics import RuntimeFamily

NANOSECONDS, MICROSECONDS, MILLISECONDS = 1_000_000_000, 1_000_000, 1000
_LABELS = ("container", "id", "image", "name", "namespace", "pod")
COUNTER, GAUGE = "counter", "gauge"
Value = float | None
Labelled = Iterable[tuple[str, Value]]  # further labels (`,device="/dev/sda"`) and a value


class _Family(Struct, frozen=True):
    name: str
    kind: str
    help: str
    samples: Callable[[CgroupDetails], Labelled]
    timed: bool = True


def _family_of_one(
    name: str, kind: str, text: str, value: Callable[[CgroupDetails], Value], *, timed: bool = True
) -> _Family:
    return _Family(f"container_{name}", kind, text, lambda row: (("", value(row)),), timed)


def _seconds(nanoseconds: int | None) -> Value:
    return None if nanoseconds is None else nanoseconds / NANOSECONDS


def _throttling(name: str, text: str, value: Callable[[CgroupDetails], Value]) -> _Family:
    """Return a family about throttling, which only cgroups with a quota have."""
    return _family_of_one(
        f"cpu_cfs_{name}_total", COUNTER, text, lambda row: None if row.cpu_quota is None else value(row)
    )


def _network(name: str, text: str, value: Callable[[InterfaceUsage], int]) -> _Family:
    def samples(row: CgroupDetails) -> Iterator[tuple[str, Value]]:
        for interface in row.network.interfaces if row.network else ():
            yield f",{label_pairs(('interface',), (interface.name,))}", value(interface)

    return _Family(f"container_network_{name}_total", COUNTER, text, samples)


def _io(name: str, text: str, value: Callable[[DeviceIo], int]) -> _Family:
    def samples(row: CgroupDetails) -> Iterator[tuple[str, Value]]:
        for io in row.io:
            yield f",{label_pairs(('device',), (io.device,))}", value(io)

    return _Family(f"container_fs_{name}_total", COUNTER, text, samples)


def _pressure(resource: str, of: Callable[[CgroupDetails], Pressure | None]) -> Iterator[_Family]:
    def waiting(row: CgroupDetails) -> Value:
        found = of(row)
        return None if found is None else found.some.total / MICROSECONDS

    def stalled(row: CgroupDetails) -> Value:
        found = of(row)
        return None if found is None else found.full.total / MICROSECONDS

    text = f"Seconds that {{}} in the container waited for {resource}"
    yield _family_of_one(f"pressure_{resource}_waiting_seconds_total", COUNTER, text.format("some tasks"), waiting)
    yield _family_of_one(f"pressure_{resource}_stalled_seconds_total", COUNTER, text.format("all tasks"), stalled)


def _cpu(row: CgroupDetails) -> Labelled:
    return ((',cpu="total"', _seconds(row.usage.cpu_nanoseconds)),)


def _failures(row: CgroupDetails) -> Labelled:
    for scope in ("container", "hierarchy"):
        yield f',failure_type="pgfault",scope="{scope}"', row.usage.page_faults
        yield f',failure_type="pgmajfault",scope="{scope}"', row.usage.major_page_faults


def _device_usage(row: CgroupDetails) -> Labelled:
    for io in row.io:
        device = label_pairs(("device", "major", "minor"), (io.device, str(io.major), str(io.minor)))
        yield f',{device},operation="Read"', io.read_bytes
        yield f',{device},operation="Write"', io.written_bytes


def _open_files(row: CgroupDetails) -> Labelled:
    return ((',ulimit="max_open_files"', row.open_files_limit),)


_FAMILIES = (
    _Family("container_cpu_usage_seconds_total", COUNTER, "CPU time, in seconds", _cpu),
    _family_of_one(
        "cpu_user_seconds_total", COUNTER, "User CPU time, in seconds", lambda r: _seconds(r.cpu_user_nanoseconds)
    ),
    _family_of_one(
        "cpu_system_seconds_total", COUNTER, "System CPU time, in seconds", lambda r: _seconds(r.cpu_system_nanoseconds)
    ),
    _throttling("periods", "Elapsed enforcement periods", lambda r: r.cpu_periods),
    _throttling("throttled_periods", "Throttled periods", lambda r: r.cpu_throttled_periods),
    _throttling("throttled_seconds", "Throttled time, in seconds", lambda r: _seconds(r.cpu_throttled_nanoseconds)),
    _throttling("burst_periods", "Periods with a burst", lambda r: r.cpu_burst_periods),
    _throttling("burst_seconds", "Time of bursts, in seconds", lambda r: _seconds(r.cpu_burst_nanoseconds)),
    _family_of_one("memory_working_set_bytes", GAUGE, "Working set, in bytes", lambda r: r.usage.memory_working_set),
    _family_of_one("memory_usage_bytes", GAUGE, "Memory in use, in bytes", lambda r: r.usage.memory_usage),
    _family_of_one("memory_rss", GAUGE, "Anonymous memory, in bytes", lambda r: r.usage.memory_rss),
    _family_of_one("memory_cache", GAUGE, "Page cache, in bytes", lambda r: r.memory_cache),
    _family_of_one("memory_swap", GAUGE, "Swap in use, in bytes", lambda r: r.usage.swap_usage),
    _family_of_one("memory_max_usage_bytes", GAUGE, "Largest use of memory, in bytes", lambda r: r.memory_max_usage),
    _family_of_one("memory_mapped_file", GAUGE, "Mapped files, in bytes", lambda r: r.memory_mapped_file),
    _family_of_one("memory_kernel_usage", GAUGE, "Memory of the kernel, in bytes", lambda r: r.memory_kernel),
    _family_of_one(
        "memory_total_active_file_bytes", GAUGE, "Active file pages, in bytes", lambda r: r.memory_active_file
    ),
    _family_of_one(
        "memory_total_inactive_file_bytes", GAUGE, "Inactive file pages, in bytes", lambda r: r.memory_inactive_file
    ),
    _family_of_one("memory_failcnt", COUNTER, "Times that the memory limit was reached", lambda r: r.memory_fail_count),
    _Family("container_memory_failures_total", COUNTER, "Page faults", _failures),
    _io("reads", "Reads from the device", lambda io: io.reads),
    _io("writes", "Writes to the device", lambda io: io.writes),
    _io("reads_bytes", "Bytes read from the device", lambda io: io.read_bytes),
    _io("writes_bytes", "Bytes written to the device", lambda io: io.written_bytes),
    _Family("container_blkio_device_usage_total", COUNTER, "Bytes read and written by device", _device_usage),
    _network("receive_bytes", "Bytes received", lambda i: i.rx_bytes),
    _network("receive_packets", "Packets received", lambda i: i.rx_packets),
    _network("receive_packets_dropped", "Received packets that were dropped", lambda i: i.rx_dropped),
    _network("receive_errors", "Errors of receiving", lambda i: i.rx_errors),
    _network("transmit_bytes", "Bytes sent", lambda i: i.tx_bytes),
    _network("transmit_packets", "Packets sent", lambda i: i.tx_packets),
    _network("transmit_packets_dropped", "Packets that were dropped instead of sent", lambda i: i.tx_dropped),
    _network("transmit_errors", "Errors of sending", lambda i: i.tx_errors),
    _family_of_one("processes", GAUGE, "Processes", lambda r: r.usage.processes),
    _family_of_one("threads", GAUGE, "Threads", lambda r: r.threads),
    _family_of_one("threads_max", GAUGE, "Largest number of threads, 0 = unlimited", lambda r: r.threads_max or 0),
    _Family("container_ulimits_soft", GAUGE, "Soft limits of the first process", _open_files),
    _family_of_one("oom_events_total", COUNTER, "Processes that the OOM killer ended", lambda r: r.oom_kills),
    *_pressure("cpu", lambda r: r.usage.cpu_pressure),
    *_pressure("memory", lambda r: r.usage.memory_pressure),
    *_pressure("io", lambda r: r.usage.io_pressure),
    _family_of_one("last_seen", GAUGE, "Time of the reading, in seconds since the epoch", lambda r: int(r.usage.time)),
    _family_of_one(
        "start_time_seconds", GAUGE, "Creation, in seconds since the epoch", lambda r: int(r.created_at), timed=False
    ),
    _family_of_one("spec_cpu_period", GAUGE, "CPU period, in microseconds", lambda r: r.cpu_period, timed=False),
    _family_of_one(
        "spec_cpu_quota", GAUGE, "CPU quota, in microseconds per period", lambda r: r.cpu_quota, timed=False
    ),
    _family_of_one("spec_cpu_shares", GAUGE, "CPU shares", lambda r: r.cpu_shares, timed=False),
    _family_of_one(
        "spec_memory_limit_bytes", GAUGE, "Memory limit, 0 = none", lambda r: r.memory_limit or 0, timed=False
    ),
    _family_of_one(
        "spec_memory_swap_limit_bytes", GAUGE, "Swap limit, 0 = none", lambda r: r.swap_limit or 0, timed=False
    ),
    _family_of_one(
        "spec_memory_reservation_limit_bytes",
        GAUGE,
        "Memory reservation, 0 = none",
        lambda r: r.memory_reservation or 0,
        timed=False,
    ),
)


def cadvisor_page(found: FoundCgroups | None, reported: Mapping[str, RuntimeFamily] | None = None) -> bytes:
    """Return the page; None = nothing could be read. `reported`: metrics that the runtime has, by name, of which those
    with the name of one here are further samples of it."""
    lines: list[str] = []
    more = dict(reported or {})
    if found is not None:
        labels = [
            label_pairs(_LABELS, (row.container, row.id, row.image, row.name, row.namespace, row.pod))
            for row in found.cgroups
        ]
        times = [f" {int(row.usage.time * MILLISECONDS)}" for row in found.cgroups]
        for family in _FAMILIES:
            _append_family(lines, family, found, labels, times, more.pop(family.name, None))
        _append_filesystems(lines, found)
        _append_machine(lines, found.machine)
    for name in sorted(more):
        lines.append(f"# HELP {name} {help_line(more[name].help)}\n# TYPE {name} {more[name].kind}\n")
        lines += more[name].lines
    _append(
        lines, "container_scrape_error", GAUGE, "1 if the cgroups could not be read, else 0", [("", int(not found))]
    )
    return "".join(lines).encode("utf-8", "replace")


def _append_family(
    lines: list[str],
    family: _Family,
    found: FoundCgroups,
    labels: list[str],
    times: list[str],
    reported: RuntimeFamily | None,
) -> None:
    name, begun = family.name, len(lines)
    lines.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n")
    for row, shown, time in zip(found.cgroups, labels, times, strict=True):
        at = time if family.timed else ""
        for more, value in family.samples(row):
            if value is not None:
                lines.append(f"{name}{{{shown}{more}}} {number(value)}{at}\n")
    lines += reported.lines if reported is not None else ()
    if len(lines) == begun + 1:
        lines.pop()


def _append_filesystems(lines: list[str], found: FoundCgroups) -> None:
    """Append the filesystems of the node, with the labels of the root cgroup."""
    of_root = label_pairs(_LABELS, ("", "/", "", "", "", ""))
    for name, text, figure in (
        ("limit_bytes", "Size of the filesystem, in bytes", "capacity"),
        ("usage_bytes", "Use of the filesystem, in bytes", "used"),
        ("inodes_total", "Inodes of the filesystem", "inodes"),
        ("inodes_free", "Free inodes of the filesystem", "inodes_free"),
    ):
        samples = [
            (
                f"{{{of_root},{label_pairs(('device',), (filesystem.device,))}}}",
                getattr(filesystem.usage, figure),
                f" {int(filesystem.usage.time * MILLISECONDS)}",
            )
            for filesystem in found.filesystems
        ]
        known = [(labels, value, at) for labels, value, at in samples if value is not None]
        _append(lines, f"container_fs_{name}", GAUGE, text, known)


def _append_machine(lines: list[str], machine: MachineInfo) -> None:
    ids = label_pairs(
        ("boot_id", "machine_id", "system_uuid"), (machine.boot_id, machine.machine_id, machine.system_uuid)
    )
    for name, text, value in (
        ("cpu_cores", "Logical processors", machine.cores),
        ("cpu_physical_cores", "Processor cores", machine.physical_cores),
        ("cpu_sockets", "Processor sockets", machine.sockets),
        ("memory_bytes", "Memory of the machine, in bytes", machine.memory),
        ("swap_bytes", "Swap of the machine, in bytes", machine.swap),
    ):
        _append(lines, f"machine_{name}", GAUGE, text, [(f"{{{ids}}}", value)])
    versions = label_pairs(
        ("cadvisorRevision", "cadvisorVersion", "dockerVersion", "kernelVersion", "osVersion"),
        ("", "", "", machine.kernel_version, machine.os_version),
    )
    _append(lines, "cadvisor_version_info", GAUGE, "Versions of kernel and system", [(f"{{{versions}}}", 1)])


def _append(
    lines: list[str], name: str, kind: str, text: str, samples: Iterable[tuple[str, float] | tuple[str, float, str]]
) -> None:
    samples = list(samples)
    if samples:
        lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")
    for labels, value, *at in samples:
        lines.append(f"{name}{labels} {number(value)}{''.join(at)}\n")
