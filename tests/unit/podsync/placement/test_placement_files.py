"""The checkpoint files in the root directory are read whole or refused with one line, and written when they change."""

import os
from pathlib import Path

import pytest

from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.cpu_state import CpuState
from services.podsync.core.checkpoints.memory_state import MemoryState
from shared.errors import OperatorError
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
