"""/metrics/cadvisor from one reading: names, labels, units and times as dashboards expect them."""

from prometheus_client.parser import text_string_to_metric_families

from bus.messages.cgroup_details import CgroupDetails, DeviceIo, FoundCgroups, HostFilesystem, MachineInfo
from bus.messages.usage import (
    CgroupUsage,
    FilesystemUsage,
    InterfaceUsage,
    NetworkUsage,
    Pressure,
    PressureShare,
)
from services.server.core.metrics.cadvisor_metrics import cadvisor_page
from shared.model.frozen_copy import replace

AT = 1_700_000_000.25
SOME = PressureShare(total=2_000_000, avg10=0, avg60=0, avg300=0)
FULL = PressureShare(total=500_000, avg10=0, avg60=0, avg300=0)
USAGE = CgroupUsage(
    time=AT,
    cpu_nanoseconds=12_500_000_000,
    memory_usage=2,
    memory_working_set=3,
    memory_rss=4,
    page_faults=5,
    major_page_faults=6,
    swap_usage=8,
    processes=9,
    memory_pressure=Pressure(some=SOME, full=FULL),
)
ETH0 = InterfaceUsage(
    name="eth0",
    rx_bytes=1,
    rx_errors=2,
    tx_bytes=3,
    tx_errors=4,
    rx_packets=5,
    rx_dropped=6,
    tx_packets=7,
    tx_dropped=8,
)
CONTAINER = CgroupDetails(
    id="/kubepods/podu/c",
    usage=USAGE,
    created_at=1_600_000_000.75,
    name="c",
    image="busybox:1",
    pod="web",
    namespace="ns",
    container="main",
    cpu_user_nanoseconds=1_500_000_000,
    cpu_periods=10,
    cpu_throttled_periods=4,
    cpu_throttled_nanoseconds=3_000_000,
    cpu_quota=20_000,
    cpu_period=100_000,
    memory_cache=11,
    memory_limit=64,
    threads=12,
    oom_kills=1,
    open_files_limit=1024,
    io=(DeviceIo(device="/dev/sda", major=8, minor=0, read_bytes=21, written_bytes=22, reads=23, writes=24),),
)
SANDBOX = CgroupDetails(
    id="/kubepods/podu/s",
    usage=USAGE,
    created_at=1.0,
    name="s",
    image="pause",
    pod="web",
    namespace="ns",
    network=NetworkUsage(time=AT, interfaces=(ETH0,)),
)
ROOT = CgroupDetails(id="/", usage=CgroupUsage(time=AT), created_at=0.0)
MACHINE = MachineInfo(
    cores=2,
    physical_cores=1,
    sockets=1,
    memory=1024,
    swap=0,
    machine_id="m",
    system_uuid="u",
    boot_id="b",
    kernel_version="6.1",
    os_version="Debian",
)
DISK = HostFilesystem(device="/dev/sda1", usage=FilesystemUsage(time=AT, capacity=100, used=60, inodes=10))
FOUND = FoundCgroups(machine=MACHINE, cgroups=(ROOT, SANDBOX, CONTAINER), filesystems=(DISK,))
LABELS = {
    "container": "main",
    "id": "/kubepods/podu/c",
    "image": "busybox:1",
    "name": "c",
    "namespace": "ns",
    "pod": "web",
}
OF_SANDBOX = {**LABELS, "container": "", "id": "/kubepods/podu/s", "image": "pause", "name": "s"}
OF_ROOT = {**dict.fromkeys(LABELS, ""), "id": "/"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], tuple[float, float | None]]


def samples(page: bytes) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value, None if sample.timestamp is None else float(sample.timestamp)
    return found


def value(found: Samples, metric: str, labels: dict[str, str], **more: str) -> tuple[float, float | None] | None:
    return found.get((f"container_{metric}", frozenset({**labels, **more}.items())))


def test_a_container_has_the_samples_of_dashboards_with_the_time_of_the_reading() -> None:
    found = samples(cadvisor_page(FOUND))
    expected = {
        "cpu_user_seconds_total": 1.5,
        "cpu_cfs_periods_total": 10,
        "cpu_cfs_throttled_periods_total": 4,
        "cpu_cfs_throttled_seconds_total": 0.003,
        "memory_working_set_bytes": 3,
        "memory_usage_bytes": 2,
        "memory_rss": 4,
        "memory_cache": 11,
        "memory_swap": 8,
        "processes": 9,
        "threads": 12,
        "threads_max": 0,
        "oom_events_total": 1,
        "pressure_memory_waiting_seconds_total": 2,
        "pressure_memory_stalled_seconds_total": 0.5,
        "last_seen": 1_700_000_000,
    }
    assert {name: value(found, name, LABELS) for name in expected} == {
        name: (number, AT) for name, number in expected.items()
    }
    assert value(found, "cpu_usage_seconds_total", LABELS, cpu="total") == (12.5, AT)
    assert value(found, "fs_reads_bytes_total", LABELS, device="/dev/sda") == (21, AT)
    assert value(found, "fs_writes_total", LABELS, device="/dev/sda") == (24, AT)
    assert value(found, "ulimits_soft", LABELS, ulimit="max_open_files") == (1024, AT)
    fault = {"failure_type": "pgmajfault", "scope": "hierarchy"}
    assert value(found, "memory_failures_total", LABELS, **fault) == (6, AT)
    operation = {"device": "/dev/sda", "major": "8", "minor": "0", "operation": "Write"}
    assert value(found, "blkio_device_usage_total", LABELS, **operation) == (22, AT)


def test_the_specification_and_the_start_have_no_time() -> None:
    found = samples(cadvisor_page(FOUND))
    for name, number in (
        ("start_time_seconds", 1_600_000_000),
        ("spec_cpu_quota", 20_000),
        ("spec_cpu_period", 100_000),
        ("spec_memory_limit_bytes", 64),
        ("spec_memory_swap_limit_bytes", 0),
    ):
        assert value(found, name, LABELS) == (number, None)


def test_the_network_belongs_to_the_sandbox() -> None:
    found = samples(cadvisor_page(FOUND))
    names = ("bytes", "errors", "packets", "packets_dropped")
    received = [value(found, f"network_receive_{name}_total", OF_SANDBOX, interface="eth0") for name in names]
    sent = [value(found, f"network_transmit_{name}_total", OF_SANDBOX, interface="eth0") for name in names]
    assert (received, sent) == ([(n, AT) for n in (1, 2, 5, 6)], [(n, AT) for n in (3, 4, 7, 8)])
    assert value(found, "network_receive_bytes_total", LABELS, interface="eth0") is None


def test_without_a_quota_there_is_no_throttling() -> None:
    free = FoundCgroups(machine=MACHINE, cgroups=(replace(CONTAINER, cpu_quota=None),))
    assert not [name for name, _ in samples(cadvisor_page(free)) if "cfs" in name or "quota" in name]


def test_machine_and_filesystems_are_shown() -> None:
    found = samples(cadvisor_page(FOUND))
    ids = frozenset({"machine_id": "m", "system_uuid": "u", "boot_id": "b"}.items())
    assert found["machine_cpu_cores", ids] == (2, None) and found["machine_memory_bytes", ids] == (1024, None)
    assert value(found, "fs_limit_bytes", OF_ROOT, device="/dev/sda1") == (100, AT)
    assert value(found, "fs_usage_bytes", OF_ROOT, device="/dev/sda1") == (60, AT)
    assert value(found, "fs_inodes_free", OF_ROOT, device="/dev/sda1") is None
    assert found["container_scrape_error", frozenset()] == (0, None)


def test_what_cannot_be_read_has_no_sample() -> None:
    names = {name for name, labels in samples(cadvisor_page(FOUND)) if ("id", "/") in labels}
    assert not names & {"container_memory_rss", "container_processes", "container_cpu_usage_seconds_total"}
    assert samples(cadvisor_page(None)) == {("container_scrape_error", frozenset()): (1, None)}
