"""Memory, filesystems and processes as the eviction signals define them, from files of both cgroup versions."""

from pathlib import Path

import pytest

from services.pleg.adapters.host_reader import read_filesystem, read_machine, read_memory, read_pids

MIB = 2**20


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    proc = tmp_path / "proc"
    (proc / "sys" / "kernel").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:  1024 kB\nMemAvailable:  700 kB\nHugePages_Total: 0\n")
    (proc / "loadavg").write_text("0.1 0.2 0.3 2/345 9999\n")
    (proc / "sys" / "kernel" / "pid_max").write_text("32768\n")
    (proc / "sys" / "kernel" / "threads-max").write_text("30000\n")
    return proc


def test_on_cgroup_v1_the_working_set_is_usage_without_inactive_file(proc: Path, tmp_path: Path) -> None:
    memory = tmp_path / "cgroup" / "memory"
    memory.mkdir(parents=True)
    (memory / "memory.usage_in_bytes").write_text("500000\n")
    (memory / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 200000\n")
    assert read_memory(proc, tmp_path / "cgroup") == (MIB, MIB - 300000)


def test_on_cgroup_v2_usage_is_anon_and_file(proc: Path, tmp_path: Path) -> None:
    (tmp_path / "memory.stat").write_text("anon 100000\nfile 300000\ninactive_file 250000\n")
    assert read_memory(proc, tmp_path) == (MIB, MIB - 150000)


def test_without_a_memory_cgroup_the_kernel_estimate_stands_in(proc: Path, tmp_path: Path) -> None:
    assert read_memory(proc, tmp_path / "none") == (MIB, 700 * 1024)


def test_processes_are_limited_by_the_lower_of_two_limits(proc: Path) -> None:
    assert read_pids(proc) == (30000, 345)


def test_what_cannot_be_read_is_minus_one(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    reading = read_machine(str(nowhere), str(nowhere), proc=nowhere, cgroups=nowhere)
    assert (reading.memory_capacity, reading.nodefs_available, reading.imagefs_capacity) == (-1, -1, -1)
    assert (reading.pids_max, reading.pids_running) == (-1, -1)


def test_a_filesystem_has_room_and_inodes(tmp_path: Path) -> None:
    capacity, available, inodes, inodes_free = read_filesystem(str(tmp_path))
    assert 0 < available <= capacity and 0 <= inodes_free <= inodes
