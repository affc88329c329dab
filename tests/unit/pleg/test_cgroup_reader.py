"""The usage of a cgroup, from the files of both versions; what is missing or garbled is left out."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import fields

from bus.messages.usage import CgroupUsage, Pressure, PressureShare
from services.pleg.adapters import cgroup_reader
from services.pleg.adapters.cgroup_reader import (
    MAX_FILE_BYTES,
    place_of,
    place_of_container,
    place_of_process,
    read_file,
    read_usage,
)
from services.pleg.core.cgroup_values import key_numbers, number, pressure
from shared.host.cgroup_layout import Hierarchies
from tests.unit.pleg.cgroup_trees import CONTAINER, V1_POD, V2_CONTAINER, V2_POD, lay_out_v1, lay_out_v2

MIB = 2**20
SOME = PressureShare(total=123456, avg10=1.5, avg60=0.4, avg300=0.1)
FULL = PressureShare(total=23456, avg10=0.5, avg60=0.2, avg300=0.0)
POD_ON_V1 = CgroupUsage(
    time=5.0,
    cpu_nanoseconds=12_500_000_000,
    memory_available=256 * MIB - 56 * MIB,
    memory_usage=60 * MIB,
    memory_working_set=56 * MIB,
    memory_rss=40 * MIB,
    page_faults=9120,
    major_page_faults=2,
    swap_usage=65536,
    processes=3,
)


def read(hierarchies: Hierarchies, name: str, proc: Path = Path("/nowhere")) -> CgroupUsage:
    usage = read_usage(place_of(hierarchies, name), 5.0, proc)
    assert usage is not None
    return usage


def test_a_cgroup_of_v1(tmp_path: Path) -> None:
    assert read(lay_out_v1(tmp_path), V1_POD) == POD_ON_V1


def test_a_cgroup_of_v2(tmp_path: Path) -> None:
    usage = read(lay_out_v2(tmp_path), V2_POD)
    waiting = Pressure(some=SOME, full=FULL)
    assert usage == CgroupUsage(
        time=5.0,
        cpu_nanoseconds=12_500_000_000,
        memory_available=256 * MIB - 56 * MIB,
        memory_usage=60 * MIB,
        memory_working_set=56 * MIB,
        memory_rss=40 * MIB,
        page_faults=9120,
        major_page_faults=2,
        swap_available=1048576 - 65536,
        swap_usage=65536,
        processes=0,
        cpu_pressure=waiting,
        memory_pressure=waiting,
        io_pressure=waiting,
    )


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_without_a_limit_nothing_is_available(version: str, tmp_path: Path) -> None:
    if version == "v1":
        usage = read(lay_out_v1(tmp_path), f"{V1_POD}/{CONTAINER}")
    else:
        usage = read(lay_out_v2(tmp_path), V2_CONTAINER)
    assert (usage.memory_available, usage.swap_available, usage.processes) == (None, None, 3)


@pytest.mark.parametrize("lay_out", [lay_out_v1, lay_out_v2])
def test_of_a_cgroup_that_is_not_there_nothing_is_known(lay_out: object, tmp_path: Path) -> None:
    assert callable(lay_out)
    assert read_usage(place_of(lay_out(tmp_path), "kubepods/none"), 5.0) is None


def test_a_missing_controller_costs_its_numbers_alone(tmp_path: Path) -> None:
    hierarchies = lay_out_v1(tmp_path)
    only_memory = Hierarchies(unified=None, by_controller={"memory": hierarchies.by_controller["memory"]})
    usage = read(only_memory, V1_POD)
    assert (usage.cpu_nanoseconds, usage.processes, usage.memory_rss) == (None, None, 40 * MIB)
    (tmp_path / "v2" / "a").mkdir(parents=True)
    (tmp_path / "v2" / "a" / "cpu.stat").write_text("usage_usec 7\n")
    usage = read(Hierarchies(unified=tmp_path / "v2", by_controller={}), "a")
    assert usage == CgroupUsage(time=5.0, cpu_nanoseconds=7000)


@pytest.mark.parametrize(("lay_out", "name"), [(lay_out_v1, V1_POD), (lay_out_v2, V2_POD)])
@pytest.mark.parametrize("number", range(10))
def test_a_cgroup_that_is_removed_while_it_is_read_has_no_wrong_number(
    lay_out: Callable[[Path], Hierarchies],
    name: str,
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = place_of(lay_out(tmp_path), name)
    complete, read_one, left = read_usage(place, 5.0), os.read, number

    def read_until_it_is_removed(descriptor: int, most: int) -> bytes:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENODEV, "No such device")  # as the kernel does for an open file of a removed cgroup
        return read_one(descriptor, most)

    monkeypatch.setattr(os, "read", read_until_it_is_removed)
    usage = read_usage(place, 5.0)
    if number == 0:
        assert usage is None
    elif usage is not None:
        known = {field.name: getattr(usage, field.name) for field in fields(usage)}
        assert {
            key: value for key, value in known.items() if value is not None and value != getattr(complete, key)
        } == {}


def test_the_root_of_v2_has_the_memory_of_the_machine(tmp_path: Path) -> None:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "pressure").mkdir(parents=True)
    root.mkdir()
    (proc / "meminfo").write_text("MemTotal: 1024 kB\nSwapTotal: 100 kB\nSwapFree: 60 kB\n")
    (proc / "pressure" / "memory").write_text("some avg10=0 avg60=0 avg300=0 total=7\n")
    (root / "cpu.stat").write_text("usage_usec 1\n")
    (root / "memory.stat").write_text("anon 100000\nfile 300000\ninactive_file 250000\n")
    usage = read(Hierarchies(unified=root, by_controller={}), "/", proc)
    assert (usage.memory_usage, usage.memory_working_set) == (400000, 150000)
    assert usage.memory_available == MIB - 150000
    assert (usage.swap_usage, usage.swap_available) == (40 * 1024, 60 * 1024)
    assert usage.memory_pressure is not None and usage.memory_pressure.some.total == 7


def test_the_cgroup_of_a_process_is_found_in_each_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cgroup").write_text("3:cpu,cpuacct:/a/b\n2:memory:/a/c\n1:name=systemd:/x\n0::/d\n")
    v1 = Hierarchies(unified=None, by_controller={"cpuacct": tmp_path / "cpuacct", "memory": tmp_path / "memory"})
    place = place_of_process(v1, 12, str(tmp_path))
    assert place is not None
    assert place.by_controller == {"cpuacct": f"{tmp_path}/cpuacct/a/b", "memory": f"{tmp_path}/memory/a/c"}
    v2 = place_of_process(Hierarchies(unified=tmp_path, by_controller={}), 12, str(tmp_path))
    assert v2 is not None and v2.unified == f"{tmp_path}/d"
    assert place_of_process(v1, 13, str(tmp_path)) is None


def test_a_file_of_the_kernel_is_read_beyond_its_first_page_up_to_the_limit() -> None:
    symbols = Path("/proc/kallsyms")
    with symbols.open("rb") as file:
        assert read_file(str(symbols)) == file.read(MAX_FILE_BYTES)
    assert len(read_file(str(symbols)) or b"") == MAX_FILE_BYTES


@pytest.mark.parametrize("below", ["", "/container", f"/init/{CONTAINER}"])
@pytest.mark.parametrize(("lay_out", "path"), [(lay_out_v1, f"{V1_POD}/{CONTAINER}"), (lay_out_v2, V2_CONTAINER)])
def test_a_container_uses_what_its_cgroup_and_those_below_it_use(
    lay_out: Callable[[Path], Hierarchies], path: str, below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes may be in a cgroup below the one that the runtime has made: with crun, or by its own choice."""
    hierarchies = lay_out(tmp_path)
    for tree in (hierarchies.unified, *hierarchies.by_controller.values()):
        if tree is not None and below:
            inner = Path(f"{tree}/{path}{below}")
            inner.mkdir(parents=True)
            (tree / path / "cgroup.procs").write_text("")
            (inner / "cgroup.procs").write_text("10\n11\n12\n")
    wanted = read_usage(place_of(lay_out(tmp_path / "plain"), path), 5.0)
    monkeypatch.setattr(
        cgroup_reader, "place_of_process", lambda hierarchies, pid: place_of(hierarchies, f"{path}{below}")
    )
    place = place_of_container(hierarchies, 7, CONTAINER)
    assert place is not None and wanted is not None and wanted.processes == 3
    assert read_usage(place, 5.0) == wanted
    of_another = place_of_container(hierarchies, 7, "other")
    assert of_another == place_of(hierarchies, f"{path}{below}")
    assert place_of_container(hierarchies, 0, CONTAINER) is None


@pytest.mark.parametrize("text", [None, b"", b"max\n", b"\xff\xfe", b"-", b" \n\n", b"9" * 5000, b"a " + b"9" * 5000])
def test_text_that_is_no_number_is_no_number(text: bytes | None) -> None:
    assert number(text) is None
    assert not key_numbers(text)
    assert pressure(text) is None


def test_lines_that_do_not_fit_are_skipped() -> None:
    assert key_numbers(b"a 1\nb\nc x\n d 2\n\xff 3\ne 4") == {"a": 1, "\N{REPLACEMENT CHARACTER}": 3, "e": 4}
    for average in (b"x", b"nan", b"1e999"):
        assert (
            pressure(b"some avg10=%s avg60=0 avg300=0 total=1\nfull avg10=0 avg60=0 avg300=0 total=1\n" % average)
            is None
        )


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\r", "\x1c", "\x85", "\u2028"])
def test_a_name_with_a_line_end_of_unicode_makes_no_line_of_its_own(character: str, tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cgroup").write_bytes(f"0::/kubepods/pod1/{character}0::/kubepods/pod2\n".encode())
    place = place_of_process(Hierarchies(unified=tmp_path, by_controller={}), 12, str(tmp_path))
    assert place is not None and place.unified is not None
    assert place.unified.startswith(f"{tmp_path}/kubepods/pod1/")


@pytest.mark.timeout(30)
def test_a_fifo_is_no_file_of_a_cgroup_and_is_not_waited_for(tmp_path: Path) -> None:
    hierarchies = lay_out_v2(tmp_path)
    directory = Path(str(place_of(hierarchies, V2_POD).unified))
    (directory / "memory.current").unlink()
    os.mkfifo(directory / "memory.current")
    assert read(hierarchies, V2_POD).memory_usage is None
    with os.fdopen(os.open(directory / "memory.current", os.O_RDWR | os.O_NONBLOCK), "wb", buffering=0) as writer:
        writer.write(b"7\n")
        assert read(hierarchies, V2_POD).memory_usage is None
