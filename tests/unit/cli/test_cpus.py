"""Who has which CPUs and NUMA memory, as a table and as data."""

from typing import Any

from msgspec import to_builtins

from services.cli.agent.cpus import CpuReport, cpu_lines, cpu_report
from tests.support.machines.numa import GIB, NumaMachine

MACHINE = NumaMachine(sockets=2, cores_per_cache=2).topology()  # threads 0 and 4, 1 and 5 | 2 and 6, 3 and 7
RESOURCES = {
    "exclusive_cpus": "1-3,5-7",
    "shared_cpus": "0-7",
    "memory": [{"nodes": [node], "kind": "memory", "size": 15 * GIB} for node in (0, 1)],
}


def admitted(name: str, cpus: dict[str, str], memory: dict[str, list[dict[str, Any]]] | None = None) -> dict[str, Any]:
    return {"uid": f"u-{name}", "name": name, "namespace": "shop", "cpus": cpus, "memory": memory or {}}


WEB = admitted("web", {"init": "2,6", "app": "2-3,6-7"}, {"app": [{"nodes": [0, 1], "kind": "memory", "size": GIB}]})


def uses(report: CpuReport) -> dict[int, str]:
    return {row.cpu: row.use for row in report.cpus}


def test_each_cpu_has_its_place_and_its_containers_and_the_pool_is_what_they_leave() -> None:
    report = cpu_report(RESOURCES, [admitted("lone", {}), WEB], MACHINE)
    assert cpu_lines(report, 0) == [
        "shared pool: 0-1,4-5",
        "reserved: 0,4",
        "",
        "CPU  NUMA  SOCKET  CORE  USE        CONTAINERS",
        "0    0     0       0     reserved",
        "1    0     0       1     shared",
        "2    1     1       2     exclusive  shop/web/init, shop/web/app",
        "3    1     1       3     exclusive  shop/web/app",
        "4    0     0       0     reserved",
        "5    0     0       1     shared",
        "6    1     1       2     exclusive  shop/web/init, shop/web/app",
        "7    1     1       3     exclusive  shop/web/app",
        "",
        "NUMA  KIND    SIZE     OF      CONTAINER",
        "0-1   memory  1.0 GiB  30 GiB  shop/web/app",
    ]


def test_without_a_policy_all_cpus_are_shared_also_for_a_message_without_the_fields() -> None:
    for resources in ({}, {"exclusive_cpus": "", "shared_cpus": "", "memory": []}):
        report = cpu_report(resources, [admitted("web", {})], MACHINE)
        assert set(uses(report).values()) == {"shared"}
        assert (report.static, report.shared_pool, report.reserved, report.memory) == (False, "0-7", "", ())
        lines = cpu_lines(report, 0)
        assert lines[:2] == ["shared pool: 0-7 (cpuManagerPolicy none)", ""] and len(lines) == 3 + 8


def test_reserved_cpus_are_no_part_of_the_pool_with_strict_reservation_but_while_it_is_empty() -> None:
    strict = {"exclusive_cpus": "1-3,5-7", "shared_cpus": "1-3,5-7"}
    assert cpu_report(strict, [WEB], MACHINE).shared_pool == "1,5"
    full = cpu_report(strict, [WEB, admitted("more", {"app": "1,5"})], MACHINE)
    assert (full.shared_pool, full.reserved) == ("0,4", "0,4")


def test_a_cpu_that_went_offline_stays_with_its_container_and_has_no_place() -> None:
    offline = NumaMachine(sockets=2, cores_per_cache=2, offline=frozenset({7})).topology()
    [row] = [row for row in cpu_report(RESOURCES, [WEB], offline).cpus if row.cpu == 7]
    assert (row.numa_node, row.socket, row.core, row.use) == (None, None, None, "exclusive")
    assert "7    -     -       -     exclusive  shop/web/app" in cpu_lines(cpu_report(RESOURCES, [WEB], offline), 0)


def test_memory_that_no_container_has_is_said_and_is_in_the_data() -> None:
    report = cpu_report(RESOURCES, [], MACHINE)
    assert cpu_lines(report, 0)[-2:] == ["", "no container has memory of NUMA nodes alone"]
    first = to_builtins(report)["allocatable_memory"][0]
    assert first == {"nodes": (0,), "kind": "memory", "size_bytes": 15 * GIB, "container": None}


def test_a_pod_with_resources_of_its_own_is_named_with_its_pool_and_shares_its_cpus_with_no_other() -> None:
    pod = admitted("db", {"main": "2"}) | {
        "pod_cpus": "2-3,6",
        "pool_cpus": {"logger": "3,6", "helper": "3,6"},
        "pod_memory": [{"nodes": [1], "kind": "memory", "size": GIB}],
    }
    report = cpu_report(RESOURCES, [pod, admitted("idle", {}) | {"pod_cpus": "1"}], MACHINE)
    lines = cpu_lines(report, 0)
    assert lines[:4] == [
        "shared pool: 0,4-5,7",
        "reserved: 0,4",
        "pod shop/db: 2-3,6 (its pool: 3,6), 1.0 GiB of memory of NUMA 1",
        "pod shop/idle: 1 (its pool: 1)",
    ]
    assert lines[7:11] == [
        "1    0     0       1     pod",
        "2    1     1       2     exclusive  shop/db/main",
        "3    1     1       3     pod        shop/db/logger, shop/db/helper",
        "4    0     0       0     reserved",
    ]
