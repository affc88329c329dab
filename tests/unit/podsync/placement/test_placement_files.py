"""The checkpoint files in the root directory are read whole or refused with one line, and written when they change."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.inherited_placements import read_inherited_placements
from services.podsync.adapters.node_placer import read_node_placer
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.cpu_state import CpuState, write_cpu_state
from services.podsync.core.checkpoints.memory_state import MemoryState
from services.podsync.core.checkpoints.takeover import cpu_state_of, memory_state_of
from services.podsync.core.placement.machine_memory import NodeMemory
from services.podsync.core.placement.placing import NodePlacer
from services.podsync.core.placement.pod_division import with_pools
from services.podsync.core.placement.pod_placement import MemoryBlock, PodPlacement
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from shared.model.frozen_copy import replace
from tests.support.machines.numa import GIB, NumaMachine
from tests.unit.podsync.placement.checkpoint_files import CPU, MEMORY

STATE = CpuState(policy="static", shared_pool=frozenset({0, 1}))


def test_there_may_be_no_files(tmp_path: Path) -> None:
    files = PlacementFiles(tmp_path)
    assert files.read_cpu() is None
    assert files.read_memory() is None


def test_what_was_written_is_read_and_has_the_go_kubelets_names_and_mode(tmp_path: Path) -> None:
    files = PlacementFiles(tmp_path)
    files.write_cpu(CpuState(policy="none"))
    files.write_memory(MemoryState(policy="None"))
    assert (tmp_path / "cpu_manager_state").read_bytes() == CPU["policy none"]
    assert (tmp_path / "memory_manager_state").read_bytes() == MEMORY["policy None"]
    assert (tmp_path / "cpu_manager_state").stat().st_mode & 0o777 == 0o600
    assert PlacementFiles(tmp_path).read_cpu() == CpuState(policy="none")
    assert PlacementFiles(tmp_path).read_memory() == MemoryState(policy="None")


def test_a_file_is_written_only_where_its_content_changed(tmp_path: Path) -> None:
    PlacementFiles(tmp_path).write_cpu(STATE)
    file = tmp_path / "cpu_manager_state"
    first = file.stat().st_ino
    files = PlacementFiles(tmp_path)
    assert files.read_cpu() == STATE
    files.write_cpu(STATE)
    assert file.stat().st_ino == first
    files.write_cpu(CpuState(policy="static", shared_pool=frozenset({0})))
    assert file.stat().st_ino != first


def test_a_write_that_failed_is_tried_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = PlacementFiles(root)
    with pytest.raises(FileNotFoundError):
        files.write_cpu(STATE)
    root.mkdir()
    files.write_cpu(STATE)
    assert files.read_cpu() == STATE


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (CPU["two pods"][:-20], "the file is not JSON at line 1 column"),
        (CPU["two pods"].replace(b"0,13", b"0,12"), "checkpoint is corrupted"),
    ],
)
def test_an_unusable_file_is_one_line_with_the_remedy_and_stays(tmp_path: Path, content: bytes, what: str) -> None:
    file = tmp_path / "cpu_manager_state"
    file.write_bytes(content)
    with pytest.raises(OperatorError) as raised:
        PlacementFiles(tmp_path).read_cpu()
    line = str(raised.value)
    assert line.startswith(f"could not restore state from checkpoint: {what}")
    assert f'drain this node and delete the CPU manager checkpoint file "{file}"' in line
    assert file.read_bytes() == content


@pytest.mark.parametrize("kind", ["directory", "FIFO"])
def test_what_is_no_file_is_named_and_does_not_block(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "memory_manager_state"
    if kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(OperatorError, match=rf"^{path}: .* \(drain this node and remove it"):
        PlacementFiles(tmp_path).read_memory()


@dataclass(frozen=True)
class Agent:
    """Has an agent with these settings on a machine, and its files."""

    config: EffectiveConfig
    placer: NodePlacer | None
    files: PlacementFiles

    def read_placements(self) -> dict[str, PodPlacement]:
        return read_inherited_placements(self.config, self.placer, self.files)

    def write_placements(self, placements: dict[str, PodPlacement]) -> None:
        assert self.placer is not None
        self.files.write_cpu(cpu_state_of("static", self.placer.shared_pool(placements.values()), placements))
        if self.placer.static_memory:
            machine = self.placer.memory.machine_memory(placements.values())
            self.files.write_memory(memory_state_of("Static", machine, placements))


def agent_on(root: Path, machine: NumaMachine, **settings: Any) -> Agent:
    """Return an agent with these settings on this machine."""
    machine.write(root)
    config = EffectiveConfig(node_name="n1", root_dir=str(root), run_dir="/u", log_dir="/l", cert_dir="/c", **settings)
    return Agent(config, read_node_placer(config, root), PlacementFiles(root))


STATIC: dict[str, Any] = {"cpu_manager_policy": "static", "kube_reserved": {"cpu": "1"}}
BOTH: dict[str, Any] = {
    "cpu_manager_policy": "static",
    "memory_manager_policy": "Static",
    "kube_reserved": {"cpu": "1", "memory": "1Gi"},
    "reserved_memory": ({"numaNode": 0, "limits": {"memory": "1Gi"}},),
}
TWO_NODES = NumaMachine(sockets=2, cores_per_cache=2, threads=1)  # CPUs 0-3, 16 GiB each


def guaranteed(uid: str, cpus: int, memory: str) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": memory}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return {"metadata": {"uid": uid}, "spec": {"containers": [container]}}


@pytest.mark.long
@pytest.mark.parametrize("sizes", [("10Gi", "12Gi", "1Gi"), ("20Gi",)], ids=["a node each", "both nodes together"])
def test_the_next_agent_reads_the_placements_that_one_wrote(tmp_path: Path, sizes: tuple[str, ...]) -> None:
    one = agent_on(tmp_path, TWO_NODES, **BOTH)
    assert one.placer is not None
    assert one.read_placements() == {}
    placements: dict[str, PodPlacement] = {}
    for number, memory in enumerate(sizes):
        pod = guaranteed(f"u{number}", 1, memory)
        placements[f"u{number}"] = one.placer.place(pod, list(placements.values()))
        one.write_placements(placements)
    next_one = agent_on(tmp_path / "next", TWO_NODES, **BOTH)
    read = replace(next_one, files=PlacementFiles(tmp_path)).read_placements()
    assert {uid: containers_of(placed) for uid, placed in read.items()} == {
        uid: containers_of(placed) for uid, placed in placements.items()
    }
    nodes = {node for placed in read.values() for block in placed.containers["c"].memory for node in block.nodes}
    assert nodes == {0, 1}


WHOLE_PODS: dict[str, Any] = {
    **BOTH,
    "topology_manager_policy": "restricted",
    "topology_manager_scope": "pod",
    "feature_gates": {"PodLevelResourceManagers": True},
}


def test_the_next_agent_reads_what_a_pod_has_as_a_whole_and_refuses_it_without_the_gate(tmp_path: Path) -> None:
    one = agent_on(tmp_path, TWO_NODES, **WHOLE_PODS)
    assert one.placer is not None
    pod = guaranteed("u", 1, "2Gi")
    pod["spec"]["containers"].append({"name": "helper"})
    amounts = {"cpu": "2", "memory": "6Gi"}
    pod["spec"]["resources"] = {"requests": amounts, "limits": amounts}
    placement = one.placer.place(pod, ())
    one.write_placements({"u": placement})
    cpu, memory = one.files.read_cpu(), one.files.read_memory()
    assert cpu is not None and memory is not None
    assert cpu.containers == {"u": {"c": frozenset({2}), "helper": frozenset({3})}}
    assert (cpu.pods, cpu.shared_pool) == ({"u": frozenset({2, 3})}, frozenset({0, 1}))
    assert b'"podEntries":{"u":{"cpuSet":"2-3"}}' in (tmp_path / "cpu_manager_state").read_bytes()
    assert [block.size for block in memory.pods["u"]] == [6 * GIB]
    assert sum(table.reserved for node in memory.machine.values() for table in node.tables.values()) == 6 * GIB
    next_one = replace(agent_on(tmp_path / "next", TWO_NODES, **WHOLE_PODS), files=PlacementFiles(tmp_path))
    read = with_pools(pod, next_one.read_placements()["u"])
    without_affinity = {name: replace(given, affinity=None) for name, given in placement.containers.items()}
    assert read == replace(placement, containers=without_affinity)
    without_gate = replace(agent_on(tmp_path / "other", TWO_NODES, **BOTH), files=PlacementFiles(tmp_path))
    with pytest.raises(OperatorError, match="set PodLevelResourceManagers to true in featureGates"):
        without_gate.read_placements()


def containers_of(placement: PodPlacement) -> dict[str, Any]:
    """Return what is in a file: without the nodes that the topology manager chose."""
    return {name: (given.cpus, given.memory) for name, given in placement.containers.items()}


def test_without_a_static_policy_files_of_policy_none_are_accepted(tmp_path: Path) -> None:
    agent = agent_on(tmp_path, TWO_NODES)
    assert agent.placer is None
    (tmp_path / "cpu_manager_state").write_bytes(CPU["policy none"])
    (tmp_path / "memory_manager_state").write_bytes(MEMORY["policy None"])
    assert agent.read_placements() == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "machine", "line"),
    [
        ({}, TWO_NODES, 'configured policy "none" differs from state checkpoint policy "static"'),
        ({**STATIC, "kube_reserved": {"cpu": "2"}}, TWO_NODES, 'not all reserved cpus: "0-1" are present in'),
        (STATIC, NumaMachine(cores_per_cache=3, threads=1), 'current set of available CPUs "0-2" doesn\'t match with'),
        (
            {**STATIC, "cpu_manager_policy_options": {"strict-cpu-reservation": "true"}},
            TWO_NODES,
            'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,2-3"',
        ),
    ],
)
def test_an_agent_does_not_start_with_a_cpu_file_of_another_node(
    tmp_path: Path, settings: dict[str, Any], machine: NumaMachine, line: str
) -> None:
    state = CpuState(policy="static", shared_pool=frozenset({0, 2, 3}), containers={"u": {"c": frozenset({1})}})
    (tmp_path / "cpu_manager_state").write_bytes(write_cpu_state(state))
    with pytest.raises(OperatorError, match=f"could not restore state from checkpoint: {re.escape(line)}"):
        agent_on(tmp_path, machine, **settings).read_placements()


def test_cpus_that_came_to_the_machine_are_shared(tmp_path: Path) -> None:
    state = CpuState(policy="static", shared_pool=frozenset({0, 2}), containers={"u": {"c": frozenset({1})}})
    (tmp_path / "cpu_manager_state").write_bytes(write_cpu_state(state))
    agent = agent_on(tmp_path, TWO_NODES, **STATIC)
    placements = agent.read_placements()
    agent.write_placements(placements)
    assert agent.files.read_cpu() == replace(state, shared_pool=frozenset({0, 2, 3}))


def test_an_agent_does_not_start_with_the_memory_file_of_a_larger_machine(tmp_path: Path) -> None:
    one = agent_on(tmp_path, TWO_NODES, **BOTH)
    assert one.placer is not None
    one.write_placements({"u": one.placer.place(guaranteed("u", 1, "10Gi"), ())})
    smaller = agent_on(tmp_path / "a", replace(TWO_NODES, memory=(15 * GIB,)), **BOTH)
    with pytest.raises(OperatorError, match="the expected machine state is different from the real one: node 0 has"):
        replace(smaller, files=PlacementFiles(tmp_path)).read_placements()
    fewer = agent_on(tmp_path / "b", replace(TWO_NODES, sockets=1, cores_per_cache=4), **BOTH)
    block = MemoryBlock(nodes=frozenset({1}), kind="memory", size=1)
    state = MemoryState(policy="Static", machine={1: NodeMemory()}, containers={"u": {"c": (block,)}})
    PlacementFiles(tmp_path).write_memory(state)
    with pytest.raises(OperatorError, match="the memory assignment uses the NUMA that does not exist"):
        replace(fewer, files=PlacementFiles(tmp_path)).read_placements()
