"""What is read of the machine."""

import os
import threading
from pathlib import Path

import pytest

from services.pleg.adapters import filesystem_reader
from services.pleg.adapters.host_reader import MachineReader, read_pids

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


async def test_what_cannot_be_read_is_minus_one(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    reading = await MachineReader(proc=nowhere).read(str(nowhere))
    assert (reading.memory_capacity, reading.nodefs_capacity, read_pids(nowhere)) == (-1, -1, (-1, -1))


async def test_a_machine_has_memory_a_filesystem_and_processors(proc: Path, tmp_path: Path) -> None:
    reading = await MachineReader(proc=proc).read(str(tmp_path))
    assert reading.memory_capacity == MIB and reading.nodefs_capacity > 0 and reading.cpus > 0


async def test_a_filesystem_that_hangs_keeps_its_capacity_and_the_rest_is_read(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, answers, real = MachineReader(proc=proc), threading.Event(), os.statvfs
    before = await machine.read(str(tmp_path))

    def hang(path: str) -> os.statvfs_result:
        answers.wait(60)
        return real(path)

    monkeypatch.setattr(os, "statvfs", hang)
    monkeypatch.setattr(filesystem_reader, "MAX_READ_SECONDS", 0.05)
    (proc / "meminfo").write_text("MemTotal:  2048 kB\n")
    after = await machine.read(str(tmp_path))
    answers.set()
    assert (after.memory_capacity, after.nodefs_capacity) == (2 * MIB, before.nodefs_capacity)
