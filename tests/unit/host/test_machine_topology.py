"""The topology of a machine is what its kernel shows (node.md 4.20), on machines made of files."""

import re
import shutil
from pathlib import Path

import pytest

from shared.errors import OperatorError
from shared.host import machine_topology
from shared.host.machine_topology import read_machine_topology
from shared.model.machine_topology import Cpu, MachineTopology, NumaNode
from tests.support.machines.numa import GIB, MACHINES, NumaMachine, put

CPUS, NODES = Path("sys/devices/system/cpu"), Path("sys/devices/system/node")


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("name", MACHINES)
def test_each_machine_is_read_as_it_is(tmp_path: Path, name: str) -> None:
    assert read_machine_topology(MACHINES[name].write(tmp_path)) == MACHINES[name].topology()


def test_a_core_has_the_id_of_its_lowest_online_cpu(tmp_path: Path) -> None:
    machine = NumaMachine(cores_per_cache=2, offline=frozenset({1}))  # cores of CPUs 0 and 2, 1 and 3
    cpus = read_machine_topology(machine.write(tmp_path)).cpus
    assert {cpu.id: cpu.core for cpu in cpus.values()} == {0: 0, 2: 0, 3: 3}


def test_huge_pages_have_the_names_of_their_resources(tmp_path: Path) -> None:
    machine = NumaMachine(huge_pages=({"hugepages-2Mi": 6 * 2**20, "hugepages-1Gi": 2 * GIB},))
    root = machine.write(tmp_path)
    put(root / NODES / "node0/hugepages/hugepages-64kB/nr_hugepages", "3")
    found = read_machine_topology(root).nodes[0].huge_pages
    assert found == {"hugepages-64Ki": 3 * 65536, "hugepages-2Mi": 6 * 2**20, "hugepages-1Gi": 2 * GIB}


def test_without_numa_nodes_each_socket_is_one_and_the_first_has_the_memory(tmp_path: Path) -> None:
    root = NumaMachine(sockets=2, cores_per_cache=1, threads=1).write(tmp_path)
    shutil.rmtree(root / NODES)
    put(root / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "4")
    assert read_machine_topology(root) == MachineTopology(
        cpus={cpu: Cpu(id=cpu, core=cpu, socket=cpu, numa_node=cpu, uncore_cache=cpu) for cpu in (0, 1)},
        nodes={0: NumaNode(id=0, memory=32 * GIB, huge_pages={"hugepages-2Mi": 8 * 2**20}), 1: NumaNode(id=1)},
    )


def test_a_virtual_machine_without_topology_and_caches(tmp_path: Path) -> None:
    for cpu in range(3):
        (tmp_path / CPUS / f"cpu{cpu}").mkdir(parents=True)
    put(tmp_path / CPUS / "cpu1/online", "0")
    put(tmp_path / "proc/meminfo", "MemTotal: 2048 kB")
    assert read_machine_topology(tmp_path) == MachineTopology(
        cpus={cpu: Cpu(id=cpu, core=cpu, socket=0, numa_node=0, uncore_cache=0) for cpu in (0, 2)},
        nodes={0: NumaNode(id=0, memory=2 * 2**20)},
    )


def test_a_core_and_a_socket_that_the_firmware_does_not_know(tmp_path: Path) -> None:
    root = NumaMachine(cores_per_cache=2, threads=1).write(tmp_path)
    for cpu in (0, 1):
        put(root / CPUS / f"cpu{cpu}/topology/core_id", "-1")
        put(root / CPUS / f"cpu{cpu}/topology/physical_package_id", "-1")
    assert [(cpu.core, cpu.socket) for cpu in read_machine_topology(root).cpus.values()] == [(0, 0), (1, 0)]


def test_cores_of_the_same_id_in_two_sockets_or_books_are_two(tmp_path: Path) -> None:
    root = NumaMachine(cores_per_cache=3, threads=1).write(tmp_path)
    for cpu, (socket, book) in enumerate(((0, 0), (1, 0), (1, 1))):
        put(root / CPUS / f"cpu{cpu}/topology/core_id", "0")
        put(root / CPUS / f"cpu{cpu}/topology/physical_package_id", str(socket))
        put(root / CPUS / f"cpu{cpu}/topology/book_id", str(book))
    assert {cpu.core for cpu in read_machine_topology(root).cpus.values()} == {0, 1, 2}


def test_caches_without_ids_are_those_of_the_lowest_cpu_that_shares_them(tmp_path: Path) -> None:
    root = NumaMachine(caches_per_node=2, cores_per_cache=2, threads=1).write(tmp_path)
    for path in root.glob("sys/devices/system/cpu/cpu*/cache/index*/id"):
        path.unlink()
    assert [cpu.uncore_cache for cpu in read_machine_topology(root).cpus.values()] == [0, 0, 2, 2]


def test_without_a_cache_above_the_second_level_the_cpus_of_a_socket_share_one(tmp_path: Path) -> None:
    root = NumaMachine(sockets=2, caches_per_node=2, cores_per_cache=1, threads=1).write(tmp_path)
    for path in root.glob("sys/devices/system/cpu/cpu*/cache/index3"):
        shutil.rmtree(path)
    assert [cpu.uncore_cache for cpu in read_machine_topology(root).cpus.values()] == [0, 0, 1, 1]


def test_node_ids_may_have_gaps_and_distances_follow_their_order(tmp_path: Path) -> None:
    root = NumaMachine(sockets=2).write(tmp_path)
    (root / NODES / "node1").rename(root / NODES / "node8")
    put(root / NODES / "node8/meminfo", "Node 8 MemTotal: 4 kB")
    put(root / NODES / "has_cpu", "0,8")
    found = read_machine_topology(root)
    assert {node.id: dict(node.distances) for node in found.nodes.values()} == {0: {0: 10, 8: 21}, 8: {0: 21, 8: 10}}
    assert {cpu.numa_node for cpu in found.cpus.values()} == {0, 8}


@pytest.mark.parametrize("text", ["", "10", "10 21 21", "10 far", "10 -1"])
def test_distances_of_another_shape_are_not_known(tmp_path: Path, text: str) -> None:
    root = NumaMachine(sockets=2).write(tmp_path)
    put(root / NODES / "node1/distance", text)
    assert [bool(node.distances) for node in read_machine_topology(root).nodes.values()] == [True, False]


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        (CPUS / "online", "0-", "'0-' is not a list of CPUs"),
        (CPUS / "online", "9", "shows no online CPU"),
        (CPUS / "cpu1/topology/core_id", "one", "'one' is not a number"),
        (CPUS / "cpu1/topology/core_id", "1" * 19, f"'{'1' * 19}' is not a number"),
        (CPUS / "cpu1/topology/physical_package_id", "\x1b[2J", r"'\x1b[2J' is not a number"),
        (CPUS / "cpu1/topology/physical_package_id", "", "'' is not a number"),
        (CPUS / "cpu1/cache/index3/level", "L3", "'L3' is not a number"),
        (CPUS / "cpu1/cache/index3/id", "9" * 100000, f"'{'9' * 32}' is not a number"),
        (NODES / "node0/meminfo", "Node 0 MemTotal: lots kB", "has no line Node <number> MemTotal: <number> kB"),
    ],
)
def test_an_impossible_content_is_one_line_with_the_file_and_the_remedy(
    tmp_path: Path, file: Path, text: str, what: str
) -> None:
    root = NumaMachine(cores_per_cache=2, threads=1).write(tmp_path)
    put(root / file, text)
    with pytest.raises(OperatorError) as raised:
        read_machine_topology(root)
    assert raised.value.what == what
    assert re.match(rf"{root / CPUS.parent}/[^ ]+: .* \(set cpuManagerPolicy, .* to none, or .*\)$", str(raised.value))


def test_a_cpu_in_two_nodes_is_refused(tmp_path: Path) -> None:
    root = NumaMachine(sockets=2, cores_per_cache=1, threads=1).write(tmp_path)
    (root / NODES / "node1/cpu0").symlink_to("../../cpu/cpu0")
    with pytest.raises(OperatorError, match="CPU 0 belongs to the NUMA nodes 0 and 1"):
        read_machine_topology(root)


def test_too_many_cpus_and_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = NumaMachine(sockets=3, cores_per_cache=1, threads=1).write(tmp_path)
    monkeypatch.setattr(machine_topology, "MAX_NODES", 2)
    with pytest.raises(OperatorError, match="has 3 entries node<number>, and at most 2 are possible"):
        read_machine_topology(root)
    monkeypatch.setattr(machine_topology, "MAX_CPUS", 2)
    with pytest.raises(OperatorError, match="has 3 entries cpu<number>, and at most 2 are possible"):
        read_machine_topology(root)


def test_this_machine_has_the_cpus_that_its_kernel_lists() -> None:
    online = Path("/", CPUS, "online").read_text().strip()
    listed = {
        cpu
        for part in online.split(",")
        for cpu in range(int(part.partition("-")[0]), int(part.rpartition("-")[2]) + 1)
    }
    found = read_machine_topology()
    assert found.all_cpus == listed
    assert sum(node.memory for node in found.nodes.values()) > 0
