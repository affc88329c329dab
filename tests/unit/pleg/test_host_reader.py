"""What is read of the machine."""

from pathlib import Path

import pytest

from services.pleg.adapters.host_reader import read_machine, read_pids

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


def test_processes_are_limited_by_the_lower_of_two_limits(proc: Path) -> None:
    assert read_pids(proc) == (30000, 345)


def test_what_cannot_be_read_is_minus_one(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    reading = read_machine(str(nowhere), proc=nowhere)
    assert (reading.memory_capacity, reading.nodefs_capacity, read_pids(nowhere)) == (-1, -1, (-1, -1))


def test_a_machine_has_memory_a_filesystem_and_processors(proc: Path, tmp_path: Path) -> None:
    reading = read_machine(str(tmp_path), proc=proc)
    assert reading.memory_capacity == MIB and reading.nodefs_capacity > 0 and reading.cpus > 0
