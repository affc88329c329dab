"""What is written atomically is on disk before it has its name, and has its name before the write returns."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shared.files.atomic import write_atomically
from shared.files.checkpoint import write_all_atomically


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced and renamed, in order: a power cut keeps what was synced before it."""
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def record_fsync(descriptor: int) -> None:
        fsync(descriptor)
        directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("sync directory" if directory else f"sync {os.fstat(descriptor).st_size} bytes")

    def record_rename(path: Path, target: Path) -> Path:
        steps.append(f"rename to {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "rename", record_rename)
    return steps


def test_a_file_is_synced_before_it_gets_its_name_and_its_directory_after(tmp_path: Path, steps: list[str]) -> None:
    write_atomically(tmp_path / "record", b"12345")
    assert steps == ["sync 5 bytes", "rename to record", "sync directory"]


def test_each_of_many_files_is_synced_before_it_gets_its_name(tmp_path: Path, steps: list[str]) -> None:
    with ThreadPoolExecutor() as threads:
        write_all_atomically(tmp_path, {"a": b"1", "b": b"12"}, threads)
    assert steps[-1] == "sync directory" and sorted(steps[:-1]) == sorted(
        ["sync 1 bytes", "rename to a", "sync 2 bytes", "rename to b"]
    )
    assert steps.index("sync 1 bytes") < steps.index("rename to a")
    assert steps.index("sync 2 bytes") < steps.index("rename to b")
