"""What is read of a pod's cgroup before a resize, on cgroup v2."""

from pathlib import Path

import pytest

from services.podsync.adapters.cgroups.cgroup_reads import read_memory_high, read_values
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.host.cgroup_layout import Hierarchies

FILES = {"cpu.max": "20000 100000", "cpu.weight": "4", "memory.max": "268435456", "memory.min": "0", "memory.low": "64"}
READ = CgroupValues(
    cpu_shares=81, cpu_quota=20_000, cpu_period=100_000, memory_limit=268435456, memory_min=0, memory_low=64
)


def read(tmp_path: Path, **changes: str | None) -> CgroupValues:
    (tmp_path / "kubepods/podu1").mkdir(parents=True)
    for name, text in {**FILES, **{key.replace("_", "."): text for key, text in changes.items()}}.items():
        if text is not None:
            (tmp_path / "kubepods/podu1" / name).write_text(f"{text}\n")
    return read_values(Hierarchies(unified=tmp_path, by_controller={}), "/kubepods/podu1")


def test_limits_and_protections_are_read(tmp_path: Path) -> None:
    assert read(tmp_path) == READ


def test_without_limits_there_are_none(tmp_path: Path) -> None:
    found = read(tmp_path, cpu_max="max 100000", memory_max="max")
    assert (found.cpu_quota, found.memory_limit) == (-1, None)


def test_a_protection_of_all_memory_or_without_a_file_is_none(tmp_path: Path) -> None:
    found = read(tmp_path, memory_min="max", memory_low=None)
    assert (found.memory_min, found.memory_low) == (None, None)


def test_a_cgroup_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_values(Hierarchies(unified=tmp_path, by_controller={}), "/kubepods/podu1")


def test_the_throttle_of_a_container_is_found_where_its_runtime_has_written_it(tmp_path: Path) -> None:
    scope = tmp_path / "pod.slice/cri-containerd-id1.scope"
    (scope / "container").mkdir(parents=True)  # of crun, or of the container's own making
    hierarchies = Hierarchies(unified=tmp_path, by_controller={})
    (scope / "memory.high").write_text("4096\n")
    assert read_memory_high(hierarchies, "/pod.slice", "id1") == {"4096"}
    (scope / "container/memory.high").write_text("max\n")
    assert read_memory_high(hierarchies, "/pod.slice", "id1") == {"4096", "max"}
    assert read_memory_high(hierarchies, "/pod.slice", "id2") == set()
    assert read_memory_high(Hierarchies(unified=None, by_controller={}), "/pod.slice", "id1") == set()
