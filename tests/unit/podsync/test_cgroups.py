"""Cgroups on every kind of host: which hierarchies there are, what is written where, and what is left in the end."""

import subprocess
from pathlib import Path

import pytest

from services.podsync.adapters import cgroups
from services.podsync.adapters.cgroups import Hierarchies
from services.podsync.core.pod_cgroup import CgroupValues

V1 = "30 20 0:25 / {root}/cpu rw - cgroup cgroup rw,cpu\n31 20 0:26 / {root}/memory rw - cgroup cgroup rw,memory\n"
NAMED = "32 20 0:27 / {root}/systemd rw - cgroup cgroup rw,name=systemd\n"
V2 = "33 20 0:28 / {root}/unified rw - cgroup2 cgroup2 rw\n"
VALUES = CgroupValues(cpu_shares=512, cpu_quota=20_000, cpu_period=100_000, memory_limit=1 << 20, pids_limit=7)


def test_a_host_with_controllers_of_version_1_is_version_1_even_with_version_2_beside_them(tmp_path: Path) -> None:
    text = (V1 + NAMED + V2).format(root=tmp_path)
    found = cgroups.find_hierarchies(text)
    assert found.unified is None
    assert found.by_controller == {name: tmp_path / name for name in ("cpu", "memory", "systemd")}
    assert found.beside == tmp_path / "unified"


def test_a_host_with_nothing_but_version_2_has_one_root(tmp_path: Path) -> None:
    found = cgroups.find_hierarchies(V2.format(root=tmp_path))
    assert found == Hierarchies(unified=tmp_path / "unified", by_controller={})
    assert found.roots() == [tmp_path / "unified"]


def test_version_2_gets_weights_and_maxima_and_controllers_on_the_way_down(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "kubepods"):
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.controllers").write_text("cpu memory pids\n")
        (directory / "cgroup.subtree_control").touch()
    cgroups.ensure(Hierarchies(unified=tmp_path, by_controller={}), "/kubepods/pod1", VALUES)
    pod = tmp_path / "kubepods" / "pod1"
    written = {name: (pod / name).read_text() for name in ("cpu.weight", "cpu.max", "memory.max", "pids.max")}
    assert written == {"cpu.weight": "20", "cpu.max": "20000 100000", "memory.max": "1048576", "pids.max": "7"}
    assert (tmp_path / "kubepods" / "cgroup.subtree_control").read_text() == "+pids"


def test_version_1_gets_each_value_in_its_own_hierarchy(tmp_path: Path) -> None:
    roots = {name: tmp_path / name for name in ("cpu", "memory", "pids")}
    for root in roots.values():
        root.mkdir()
    cgroups.ensure(Hierarchies(unified=None, by_controller=roots), "/kubepods/burstable/pod1", VALUES)
    pod = "kubepods/burstable/pod1"
    assert (tmp_path / "cpu" / pod / "cpu.shares").read_text() == "512"
    assert (tmp_path / "cpu" / pod / "cpu.cfs_quota_us").read_text() == "20000"
    assert (tmp_path / "memory" / pod / "memory.limit_in_bytes").read_text() == "1048576"
    assert (tmp_path / "pids" / pod / "pids.max").read_text() == "7"


def test_a_value_that_is_refused_names_the_file_when_the_cgroup_is_new(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/kubepods/pod1/cpu.shares").mkdir(parents=True)
    (tmp_path / "memory").mkdir()
    roots = {"cpu": tmp_path / "cpu", "memory": tmp_path / "memory"}
    with pytest.raises(OSError, match=r"cannot write '512' to .*cpu\.shares"):
        cgroups.ensure(Hierarchies(unified=None, by_controller=roots), "/kubepods/pod1", VALUES)


def test_a_value_that_is_refused_by_a_cgroup_in_use_leaves_it_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "cpu/kubepods/pod1/cpu.shares").mkdir(parents=True)
    hierarchies = Hierarchies(unified=None, by_controller={"cpu": tmp_path / "cpu"})
    cgroups.ensure(hierarchies, "/kubepods/pod1", CgroupValues(cpu_shares=2))


def test_what_was_never_made_is_destroyed_without_complaint(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    cgroups.destroy(Hierarchies(unified=None, by_controller={"cpu": tmp_path / "cpu"}), "/kubepods/pod1")


@pytest.mark.root
def test_a_real_cgroup_is_made_its_processes_are_killed_and_it_goes_with_everything_below() -> None:
    hierarchies = cgroups.find_hierarchies()
    name = f"/bulkhead-test-{id(hierarchies):x}/pod1"
    cgroups.ensure(hierarchies, name, CgroupValues(cpu_shares=2))
    below = hierarchies.roots()[0] / name.strip("/") / "container"
    below.mkdir()
    process = subprocess.Popen(["sleep", "1000"])
    (below / "cgroup.procs").write_text(str(process.pid))
    cgroups.destroy(hierarchies, name)
    assert process.wait() == -9
    assert not [root for root in hierarchies.roots() if (root / name.strip("/")).exists()]
    cgroups.destroy(hierarchies, str(Path(name).parent))
