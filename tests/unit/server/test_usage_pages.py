"""/stats/summary and /metrics/resource from one reading: names, units, times, and what is absent when not known."""

import json

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bus.messages.usage import (
    CgroupUsage,
    ContainerUsage,
    FilesystemUsage,
    FoundUsage,
    InterfaceUsage,
    NetworkUsage,
    NodeUsage,
    PodUsage,
    Pressure,
    PressureShare,
    SystemContainerUsage,
    VolumeUsage,
)
from services.server.core.metrics.resource_metrics import resource_page
from services.server.core.metrics.stats_summary import summary, with_one_space
from shared.model.frozen_copy import replace

AT, TIME = 1_700_000_000.25, "2023-11-14T22:13:20Z"
SHARE = PressureShare(total=7, avg10=0.5, avg60=0.25, avg300=0.0)
PSI = {"full": {"total": 7, "avg10": 0.5, "avg60": 0.25, "avg300": 0.0}}
PSI["some"] = PSI["full"]
CGROUP = CgroupUsage(
    time=AT,
    cpu_nanoseconds=12_500_000_000,
    cpu_nanocores=250,
    memory_available=1,
    memory_usage=2,
    memory_working_set=3,
    memory_rss=4,
    page_faults=5,
    major_page_faults=6,
    swap_available=7,
    swap_usage=8,
    processes=9,
    io_pressure=Pressure(some=SHARE, full=SHARE),
)
CPU = {"time": TIME, "usageNanoCores": 250, "usageCoreNanoSeconds": 12_500_000_000}
MEMORY = {
    "time": TIME,
    "availableBytes": 1,
    "usageBytes": 2,
    "workingSetBytes": 3,
    "rssBytes": 4,
    "pageFaults": 5,
    "majorPageFaults": 6,
}
SWAP = {"time": TIME, "swapAvailableBytes": 7, "swapUsageBytes": 8}
USED = {"cpu": CPU, "memory": MEMORY, "swap": SWAP}
FILES = FilesystemUsage(time=AT, available=1, capacity=2, used=3, inodes=4, inodes_free=5, inodes_used=6)
FS = {
    "time": TIME,
    "availableBytes": 1,
    "capacityBytes": 2,
    "usedBytes": 3,
    "inodesFree": 5,
    "inodes": 4,
    "inodesUsed": 6,
}
ETH0 = InterfaceUsage(name="eth0", rx_bytes=1, rx_errors=2, tx_bytes=3, tx_errors=4)
INTERFACE = {"name": "eth0", "rxBytes": 1, "rxErrors": 2, "txBytes": 3, "txErrors": 4}
NETWORK = {"time": TIME, **INTERFACE, "interfaces": [INTERFACE]}
POD = PodUsage(
    uid="u",
    name="web",
    namespace="ns",
    created_at=1_700_000_000_000_000_000,
    read_at=1.0,
    cgroup=CGROUP,
    network=NetworkUsage(time=AT, interfaces=(ETH0,)),
    processes=9,
    containers=(
        ContainerUsage(
            id="c", name="main", created_at=1_700_000_000_500_000_000, cgroup=CGROUP, rootfs=FILES, logs=FILES
        ),
    ),
    volumes=(
        VolumeUsage(name="data", filesystem=FilesystemUsage(time=AT, used=3), claim="claim", abnormal=True),
        VolumeUsage(name="scratch", filesystem=FILES, ephemeral=True),
    ),
    ephemeral_storage=FILES,
)
NODE = NodeUsage(
    read_at=1.0,
    started_at=AT,
    cgroup=CGROUP,
    pids_max=100,
    pids_current=10,
    network=NetworkUsage(time=AT),
    nodefs=FILES,
    imagefs=FILES,
    containerfs=FILES,
    system_containers=(SystemContainerUsage(name="pods", created_at=AT, cgroup=CGROUP),),
)
FOUND = FoundUsage(node=NODE, pods=(POD,), complete=True)
NOTHING = FoundUsage(
    node=NodeUsage(read_at=1.0, started_at=AT, cgroup=CgroupUsage(time=AT)),
    pods=(PodUsage(uid="u", name="web", namespace="ns", created_at=0, read_at=1.0),),
)


def test_the_summary_has_the_kubelets_fields() -> None:
    io = {"io": {"time": TIME, "psi": PSI}}
    empty = {"time": TIME, "availableBytes": 0, "capacityBytes": 0, "usedBytes": 3}
    assert summary(FOUND, "node-1", only_cpu_and_memory=False) == {
        "node": {
            "nodeName": "node-1",
            "systemContainers": [{"name": "pods", "startTime": TIME, **USED, **io}],
            "startTime": TIME,
            **USED,
            **io,
            "network": {"time": TIME, "name": ""},
            "fs": FS,
            "runtime": {"imageFs": FS, "containerFs": FS},
            "rlimit": {"time": TIME, "maxpid": 100, "curproc": 10},
        },
        "pods": [
            {
                "podRef": {"name": "web", "namespace": "ns", "uid": "u"},
                "startTime": TIME,
                "containers": [{"name": "main", "startTime": TIME, **USED, **io, "rootfs": FS, "logs": FS}],
                **USED,
                **io,
                "network": NETWORK,
                "volume": [
                    {**FS, "name": "scratch"},
                    {
                        **empty,
                        "inodesFree": 0,
                        "inodes": 0,
                        "inodesUsed": 0,
                        "name": "data",
                        "pvcRef": {"name": "claim", "namespace": "ns"},
                        "volumeHealthStats": {"abnormal": True},
                    },
                ],
                "ephemeral-storage": FS,
                "process_stats": {"process_count": 9},
            }
        ],
    }


def test_the_short_summary_has_cpu_memory_and_swap_alone() -> None:
    assert summary(FOUND, "node-1", only_cpu_and_memory=True) == {
        "node": {
            "nodeName": "node-1",
            "systemContainers": [{"name": "pods", "startTime": TIME, **USED}],
            "startTime": TIME,
            **USED,
        },
        "pods": [
            {
                "podRef": {"name": "web", "namespace": "ns", "uid": "u"},
                "startTime": TIME,
                "containers": [{"name": "main", "startTime": TIME, **USED}],
                **USED,
            }
        ],
    }


def test_what_is_not_known_is_absent() -> None:
    assert summary(NOTHING, "node-1", only_cpu_and_memory=False) == {
        "node": {"nodeName": "node-1", "systemContainers": [], "startTime": TIME},
        "pods": [
            {
                "podRef": {"name": "web", "namespace": "ns", "uid": "u"},
                "startTime": "1970-01-01T00:00:00Z",
                "containers": [],
            }
        ],
    }


def test_the_document_is_indented_by_one_space() -> None:
    document = {"a": [{"b": {"c": [1, 2]}, "d": []}], "e": "\n  f"}
    text = with_one_space(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    assert text.decode() == json.dumps(document, indent=1)


Sample = tuple[str, frozenset[tuple[str, str]]]


def samples(page: bytes) -> dict[Sample, tuple[float, float | None]]:
    return {
        (sample.name, frozenset(sample.labels.items())): (
            sample.value,
            float(sample.timestamp) if sample.timestamp is not None else None,
        )
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_the_resource_page_has_the_samples_that_metrics_server_reads() -> None:
    pod = {"pod": "web", "namespace": "ns"}
    container = {**pod, "container": "main"}
    expected: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, float | None]] = {}
    for prefix, labels in (("node", {}), ("pod", pod), ("container", container)):
        for name, value in (
            ("cpu_usage_seconds_total", 12.5),
            ("memory_working_set_bytes", 3),
            ("swap_usage_bytes", 8),
        ):
            expected[f"{prefix}_{name}", tuple(labels.items())] = (value, AT)
    expected["container_swap_limit_bytes", tuple(container.items())] = (15, AT)
    expected["container_start_time_seconds", tuple(container.items())] = (1_700_000_000.5, None)
    expected["resource_scrape_error", ()] = (0, None)
    assert samples(resource_page(FOUND)) == {
        (name, frozenset(labels)): value for (name, labels), value in expected.items()
    }


@pytest.mark.parametrize(("found", "error"), [(None, 1), (NOTHING, 0)])
def test_without_figures_the_resource_page_has_the_error_alone(found: FoundUsage | None, error: int) -> None:
    assert samples(resource_page(found)) == {("resource_scrape_error", frozenset()): (error, None)}


def test_labels_are_escaped() -> None:
    odd = FoundUsage(node=NOTHING.node, pods=(replace(POD, name='a"\\b\nc'),))
    assert {dict(labels).get("pod") for _, labels in samples(resource_page(odd))} == {None, 'a"\\b\nc'}
