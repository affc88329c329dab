"""`bulkhead config check` finds what podsync would refuse at the start: policies for CPUs and memory for which an agent
before has left other files (node.md 4.10, 4.11)."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.cli.config.check import check_configuration
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.cpu_state import CpuState

STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
ALONE = {"authentication": {"webhook": {"enabled": False}}, "authorization": {"mode": "AlwaysAllow"}}


@dataclass
class Checked:
    """Has what `config check` printed about a configuration of the node whose root directory is `root`."""

    root: Path
    lines: list[str] = field(default_factory=list)

    def check(self, **keys: Any) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit code and the problems."""
        head = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
        file = self.root.with_suffix(".json")
        file.write_text(json.dumps(head | keys | ALONE, indent=1))
        self.lines.clear()
        flags = [f"--config={file}", f"--root-dir={self.root}"]
        code = check_configuration(lambda: flags, "json", self.lines.append, self.lines.append)
        return code, [found for found in json.loads("\n".join(self.lines)) if found["severity"] == "error"]


@pytest.fixture
def node(tmp_path: Path) -> Checked:
    root = tmp_path / "root"
    root.mkdir()
    return Checked(root)


@pytest.mark.long
def test_a_policy_without_files_of_an_agent_before_is_good(node: Checked) -> None:
    assert node.check(**STATIC) == (0, [])


@pytest.mark.long
def test_a_policy_that_differs_from_that_of_the_agent_before_is_a_problem_with_its_remedy(node: Checked) -> None:
    PlacementFiles(node.root).write_cpu(CpuState(policy="static", shared_pool=frozenset({0})))
    code, [problem] = node.check()
    assert code == 1
    assert 'configured policy "none" differs from state checkpoint policy "static"' in problem["message"]
    assert problem["remedy"] == "or set cpuManagerPolicy to static"
    (node.root / "cpu_manager_state").unlink()
    assert node.check() == (0, [])


def test_a_file_that_cannot_be_read_is_a_problem(node: Checked) -> None:
    (node.root / "memory_manager_state").write_text("{")
    code, [problem] = node.check()
    assert code == 1
    assert "memory manager checkpoint file" in problem["message"]
