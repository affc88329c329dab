"""What podsync would refuse at its start is found without a start, all of it at once."""

from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.placement_conflicts import find_placement_conflicts
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.cpu_state import CpuState
from services.podsync.core.checkpoints.memory_state import MemoryState
from shared.config.effective import EffectiveConfig
from tests.support.machines.numa import NumaMachine

MACHINE = NumaMachine(sockets=2, cores_per_cache=2, threads=2)  # CPUs 0-7


def config(root: Path, **settings: Any) -> EffectiveConfig:
    given: Any = {"system_reserved": {"cpu": "1"}, **settings}
    return EffectiveConfig(node_name="n1", root_dir=str(root), run_dir="/u", log_dir="/l", cert_dir="/c", **given)


def lines(root: Path, machine: NumaMachine = MACHINE, **settings: Any) -> list[str]:
    (root / "root").mkdir(exist_ok=True)
    conflicts = find_placement_conflicts(config(root / "root", **settings), machine.write(root / "machine"))
    return [str(conflict) for conflict in conflicts]


@pytest.mark.long
@pytest.mark.parametrize("policy", ["none", "static"])
def test_without_files_there_is_no_conflict(tmp_path: Path, policy: str) -> None:
    assert lines(tmp_path, cpu_manager_policy=policy) == []


@pytest.mark.long
def test_a_machine_with_too_many_numa_nodes_is_a_conflict_of_the_policy_that_aligns(tmp_path: Path) -> None:
    large = NumaMachine(sockets=9, cores_per_cache=1)
    [line] = lines(tmp_path, large, topology_manager_policy="restricted")
    assert line.startswith("topologyManagerPolicy: unsupported on machines with more than 8 NUMA Nodes")


def test_the_conflicts_with_the_machine_and_with_both_files_are_found_together(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    PlacementFiles(tmp_path / "root").write_cpu(CpuState(policy="none"))
    PlacementFiles(tmp_path / "root").write_memory(MemoryState(policy="Static"))
    machine, cpus, memory = lines(tmp_path, cpu_manager_policy="static", reserved_system_cpus="9")
    assert machine.startswith("cpuManagerPolicy: reserved CPUs 9 are not online on this machine")
    assert 'configured policy "static" differs from state checkpoint policy "none"' in cpus
    assert 'configured policy "None" differs from state checkpoint policy "Static"' in memory


def test_a_file_that_cannot_be_read_is_the_conflict(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cpu_manager_state").write_bytes(b"{")
    [line] = lines(tmp_path)
    assert "could not restore state from checkpoint: the file is not JSON" in line
