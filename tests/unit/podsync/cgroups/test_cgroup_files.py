"""Every value of a cgroup, and the file and text it becomes on v1 and on v2; worked by hand from the reference."""

from pathlib import Path

import pytest

from services.podsync.adapters.cgroups import cgroup_files
from services.podsync.core.cgroups.cgroup_files import FileText, v1_files, v2_files
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.host.cgroup_layout import Hierarchies

SIZES = ("2MB", "1GB")

# values -> {file: text} on v1, on v2
CASES = [
    (CgroupValues(), {}, {}),
    (CgroupValues(cpu_shares=2), {"cpu.shares": "2"}, {"cpu.weight": "1"}),
    (CgroupValues(cpu_shares=102), {"cpu.shares": "102"}, {"cpu.weight": "4"}),
    (CgroupValues(cpu_shares=512), {"cpu.shares": "512"}, {"cpu.weight": "20"}),
    (CgroupValues(cpu_shares=1024), {"cpu.shares": "1024"}, {"cpu.weight": "39"}),
    (CgroupValues(cpu_shares=262144), {"cpu.shares": "262144"}, {"cpu.weight": "10000"}),
    (CgroupValues(cpu_shares=0), {}, {}),
    (CgroupValues(cpu_quota=25_000, cpu_period=100_000),
     {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "25000"}, {"cpu.max": "25000 100000"}),
    (CgroupValues(cpu_quota=-1, cpu_period=100_000),
     {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"}, {"cpu.max": "max 100000"}),
    (CgroupValues(cpu_quota=0, cpu_period=50_000), {"cpu.cfs_period_us": "50000"}, {"cpu.max": "max 50000"}),
    (CgroupValues(cpu_quota=5_000), {"cpu.cfs_quota_us": "5000"}, {"cpu.max": "5000 100000"}),
    (CgroupValues(memory_limit=64 << 20), {"memory.limit_in_bytes": "67108864"}, {"memory.max": "67108864"}),
    (CgroupValues(memory_limit=-1), {"memory.limit_in_bytes": "-1"}, {"memory.max": "max"}),
    (CgroupValues(memory_limit=0), {}, {}),
    (CgroupValues(memory_min=4096, memory_low=0), {}, {"memory.min": "4096", "memory.low": "0"}),
    (CgroupValues(pids_limit=100), {"pids.max": "100"}, {"pids.max": "100"}),
    (CgroupValues(pids_limit=-1), {"pids.max": "max"}, {"pids.max": "max"}),
    (CgroupValues(pids_limit=0), {"pids.max": "1"}, {"pids.max": "1"}),
    (CgroupValues(cpuset_cpus="0-1"), {"cpuset.cpus": "0-1"}, {"cpuset.cpus": "0-1"}),
]  # fmt: skip


def texts(files: list[FileText]) -> dict[str, str]:
    return {file.file: file.text for file in files}


def test_a_value_becomes_a_text(subtests: pytest.Subtests) -> None:
    for values, on_v1, on_v2 in CASES:
        with subtests.test(f"{values!r:.80}"):
            assert texts(v1_files(values, ())) == on_v1
            assert texts(v2_files(values, ())) == on_v2


def test_a_page_size_without_a_limit_is_given_none() -> None:
    values = CgroupValues(hugepage_limits={"2MB": 4 << 20})
    assert texts(v1_files(values, SIZES)) == {
        "hugetlb.2MB.limit_in_bytes": "4194304",
        "hugetlb.2MB.rsvd.limit_in_bytes": "4194304",
        "hugetlb.1GB.limit_in_bytes": "0",
        "hugetlb.1GB.rsvd.limit_in_bytes": "0",
    }
    assert texts(v2_files(values, SIZES)) == {
        "hugetlb.2MB.max": "4194304",
        "hugetlb.2MB.rsvd.max": "4194304",
        "hugetlb.1GB.max": "0",
        "hugetlb.1GB.rsvd.max": "0",
    }
    assert {file.file for file in v2_files(values, SIZES) if file.if_present} == {
        "hugetlb.2MB.rsvd.max",
        "hugetlb.1GB.rsvd.max",
    }


def test_a_change_of_the_shares_alone_takes_huge_pages_away() -> None:
    assert texts(v1_files(CgroupValues(cpu_shares=2), ("2MB",)))["hugetlb.2MB.limit_in_bytes"] == "0"


def test_only_the_shares_are_read_again() -> None:
    values = CgroupValues(cpu_shares=2, cpu_quota=1, cpu_period=1, memory_limit=1, pids_limit=1)
    assert [file.file for file in v1_files(values, SIZES) if file.read_back] == ["cpu.shares"]
    assert not [file for file in v2_files(values, SIZES) if file.read_back]


# On trees of files

VALUES = CgroupValues(cpu_shares=512, cpu_quota=20_000, cpu_period=100_000, memory_limit=1 << 20, pids_limit=7,
                      hugepage_limits={"2MB": 0})  # fmt: skip


def test_version_1_gets_each_value_in_its_own_tree(tmp_path: Path) -> None:
    roots = {name: tmp_path / name for name in ("cpu", "memory", "pids", "hugetlb")}
    hierarchies = Hierarchies(unified=None, by_controller=roots)
    for root in roots.values():
        root.mkdir()
    cgroup_files.make(hierarchies, "/kubepods/pod1")
    cgroup_files.write(hierarchies, "/kubepods/pod1", VALUES, SIZES)
    written = {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {
        "cpu/kubepods/pod1/cpu.shares": "512",
        "cpu/kubepods/pod1/cpu.cfs_period_us": "100000",
        "cpu/kubepods/pod1/cpu.cfs_quota_us": "20000",
        "memory/kubepods/pod1/memory.limit_in_bytes": "1048576",
        "pids/kubepods/pod1/pids.max": "7",
        "hugetlb/kubepods/pod1/hugetlb.2MB.limit_in_bytes": "0",
        "hugetlb/kubepods/pod1/hugetlb.1GB.limit_in_bytes": "0",
    }


def test_version_2_gets_weights_and_maxima(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids hugetlb")
    hierarchies = Hierarchies(unified=tmp_path, by_controller={})
    cgroup_files.make(hierarchies, "/kubepods/pod1")
    (tmp_path / "kubepods/pod1/hugetlb.2MB.rsvd.max").touch()
    cgroup_files.write(hierarchies, "/kubepods/pod1", VALUES, SIZES)
    written = {p.name: p.read_text() for p in (tmp_path / "kubepods/pod1").iterdir()}
    assert written == {
        "cpu.weight": "20",
        "cpu.max": "20000 100000",
        "memory.max": "1048576",
        "pids.max": "7",
        "hugetlb.2MB.max": "0",
        "hugetlb.2MB.rsvd.max": "0",
        "hugetlb.1GB.max": "0",
    }


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_a_kernel_without_huge_pages_or_pids_is_fine(tmp_path: Path, kind: str) -> None:
    roots = {"cpu": tmp_path / "cpu", "memory": tmp_path / "memory"}
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    hierarchies = (
        Hierarchies(unified=None, by_controller=roots)
        if kind == "v1"
        else Hierarchies(unified=tmp_path, by_controller={})
    )
    for root in roots.values():
        root.mkdir()
    cgroup_files.make(hierarchies, "/pod1")
    cgroup_files.write(hierarchies, "/pod1", VALUES, SIZES)
    assert not [p for p in tmp_path.rglob("*") if p.name.startswith(("hugetlb", "pids"))]


def test_version_2_without_cpuset_leaves_its_processes_on_all_cpus(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    hierarchies = Hierarchies(unified=tmp_path, by_controller={})
    cgroup_files.make(hierarchies, "/kubepods")
    cgroup_files.write(hierarchies, "/kubepods", CgroupValues(cpuset_cpus="0-1", memory_limit=4096), ())
    assert {p.name for p in (tmp_path / "kubepods").iterdir()} == {"memory.max"}


def test_a_file_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "kubepods/cpu.shares").mkdir(parents=True)
    hierarchies = Hierarchies(unified=None, by_controller={"cpu": tmp_path})
    with pytest.raises(OSError, match=rf"cannot write '2' to {tmp_path}/kubepods/cpu\.shares: Is a directory"):
        cgroup_files.write(hierarchies, "/kubepods", CgroupValues(cpu_shares=2), ())


def test_a_controller_that_is_not_there_is_named(tmp_path: Path) -> None:
    hierarchies = Hierarchies(unified=None, by_controller={"cpu": tmp_path})
    with pytest.raises(OSError, match="cgroup controller memory is not mounted"):
        cgroup_files.write(hierarchies, "/", CgroupValues(memory_limit=1), ())
