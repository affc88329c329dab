"""Which CPUs of a machine the static policy can give out, and what its options need of the machine."""

from pathlib import Path
from typing import Any

import pytest

from shared.config.findings import Findings
from shared.config.host_cpus import CpuLayout, read_cpu_layout
from shared.config.host_facts import HostFacts, check_host, read_host_facts
from tests.support.machines.numa import NumaMachine

STATIC: dict[str, Any] = {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}}
CORES = frozenset({frozenset({0, 4}), frozenset({1, 5}), frozenset({2, 6}), frozenset({3, 7})})
SMT = HostFacts(
    online_cpus=frozenset(range(8)), cpu_layout=lambda: CpuLayout(CORES, 1, True), numa_nodes=frozenset({0})
)


def noted(facts: HostFacts, options: list[str], **data: Any) -> tuple[list[str], list[str]]:
    """Return the lines that refuse the configuration, and the other ones."""
    findings = Findings()
    given = {**STATIC, "cpuManagerPolicyOptions": dict.fromkeys(options, "true"), **data}
    check_host(given, facts, findings)
    return findings.lines, [one.line for one in findings.found if one.line not in findings.lines]


def test_the_cores_sockets_and_caches_of_a_machine_are_read(tmp_path: Path) -> None:
    root = NumaMachine(sockets=2, cores_per_cache=2, offline=frozenset({5})).write(tmp_path)
    online = frozenset({0, 1, 2, 3, 4, 6, 7})
    cores = frozenset({frozenset({0, 4}), frozenset({1}), frozenset({2, 6}), frozenset({3, 7})})
    assert read_cpu_layout(root, online) == CpuLayout(cores, 2, True)
    assert read_host_facts(str(root)).cpu_layout() == CpuLayout(cores, 2, True)
    for path in root.glob("sys/devices/system/cpu/cpu*/cache/index3/level"):
        path.unlink()
    assert read_cpu_layout(root, online).shared_caches is False


def test_only_a_static_policy_has_the_layout_read() -> None:
    read: list[str] = []

    def layout() -> CpuLayout:
        read.append("layout")
        return CpuLayout()

    facts = HostFacts(online_cpus=frozenset(range(256)), cpu_layout=layout)
    noted(facts, [], cpuManagerPolicy="none")
    assert read == []
    noted(facts, [])
    assert read == ["layout"]


def test_a_machine_that_shows_nothing_is_not_checked(tmp_path: Path) -> None:
    assert read_cpu_layout(tmp_path, frozenset({0, 1})) == CpuLayout()
    facts = HostFacts(online_cpus=frozenset({0, 1}))
    options = ["full-pcpus-only", "align-by-socket", "prefer-align-cpus-by-uncorecache"]
    assert noted(facts, options, reservedSystemCPUs="0") == ([], [])


def test_a_core_that_is_reserved_in_part_is_a_warning_where_only_whole_cores_are_given_out() -> None:
    refused, [line] = noted(SMT, ["full-pcpus-only"], reservedSystemCPUs="0-1")
    assert refused == []
    assert line == (
        'reservedSystemCPUs: is "0-1", and full-pcpus-only gives the other CPUs of the same cores (4-5) to no '
        'container (set it to "0-1,4-5")'
    )
    assert noted(SMT, ["full-pcpus-only"], reservedSystemCPUs="0-1,4-5") == ([], [])
    assert noted(SMT, [], reservedSystemCPUs="0-1") == ([], [])
    assert noted(SMT, ["full-pcpus-only"], reservedSystemCPUs="0-1", cpuManagerPolicy="none") == ([], [])


@pytest.mark.parametrize(
    ("reserved", "everything"),
    [({"cpu": "7001m"}, True), ({"cpu": "7"}, False), ({"cpu": "8"}, True)],
)
def test_a_reservation_of_all_cpus_is_named(reserved: dict[str, str], everything: bool) -> None:
    refused, warned = noted(SMT, [], kubeReserved=reserved)
    assert refused == []
    assert [line.partition(" (")[0] for line in warned] == [
        "cpuManagerPolicy: is static while all 8 CPUs are reserved: no container gets CPUs of its own"
    ] * everything
    refused, warned = noted(SMT, ["strict-cpu-reservation"], kubeReserved=reserved)
    assert warned == []
    assert [line.partition(" (")[0] for line in refused] == [
        "cpuManagerPolicyOptions.strict-cpu-reservation: leaves no CPU to any container: all 8 are reserved"
    ] * everything


def test_sockets_cannot_be_aligned_to_where_a_numa_node_has_several() -> None:
    two = HostFacts(
        online_cpus=frozenset(range(8)), cpu_layout=lambda: CpuLayout(CORES, 2, True), numa_nodes=frozenset({0})
    )
    [line], _ = noted(two, ["align-by-socket"])
    assert line.startswith(
        "cpuManagerPolicyOptions.align-by-socket: is not possible on a machine with 2 sockets and 1 NUMA nodes ("
    )
    assert noted(SMT, ["align-by-socket"]) == ([], [])


def test_caches_that_the_kernel_does_not_show_are_a_warning() -> None:
    without = HostFacts(online_cpus=frozenset(range(8)), cpu_layout=lambda: CpuLayout(CORES, 1, False))
    refused, [line] = noted(without, ["prefer-align-cpus-by-uncorecache"])
    assert refused == []
    assert "prefer-align-cpus-by-uncorecache: aligns to sockets here: the kernel shows no L3 cache" in line
    assert noted(SMT, ["prefer-align-cpus-by-uncorecache"]) == ([], [])
