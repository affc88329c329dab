"""Cgroups on every kind of host: which hierarchies there are, what exists, and whose a cgroup is."""

import errno
import os
from pathlib import Path

import pytest

from services.podsync.adapters.cgroups import cgroup_files, cgroup_removal
from services.podsync.adapters.cgroups.cgroup_drivers import must_be_written
from services.podsync.core.cgroups.pod_cgroup import pod_uid_of
from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies

V1 = "30 20 0:25 / {root}/cpu rw - cgroup cgroup rw,cpu\n31 20 0:26 / {root}/memory rw - cgroup cgroup rw,memory\n"
NAMED = "32 20 0:27 / {root}/systemd rw - cgroup cgroup rw,name=systemd\n"
V2 = "33 20 0:28 / {root}/unified rw - cgroup2 cgroup2 rw\n"
AGAIN = "34 20 0:25 / {root}/elsewhere/cpu rw - cgroup cgroup rw,cpu\n"
POD = "/kubepods/burstable/pod1"


def v1(root: Path, *controllers: str) -> Hierarchies:
    for controller in controllers:
        (root / controller).mkdir(exist_ok=True)
    return Hierarchies(unified=None, by_controller={name: root / name for name in controllers})


def v2(root: Path, controllers: str = "cpuset cpu memory hugetlb pids") -> Hierarchies:
    (root / "cgroup.controllers").write_text(controllers)
    return Hierarchies(unified=root, by_controller={})


def test_a_host_with_controllers_of_version_1_is_version_1_even_with_version_2_beside_them(tmp_path: Path) -> None:
    text = (V1 + NAMED + V2).format(root=tmp_path)
    found = cgroup_layout.find_hierarchies(text)
    assert found.unified is None
    assert found.by_controller == {name: tmp_path / name for name in ("cpu", "memory", "systemd")}
    assert found.beside == tmp_path / "unified"
    assert found.places(POD)[-1] == tmp_path / "unified/kubepods/burstable/pod1"


def test_a_host_with_nothing_but_version_2_has_one_root(tmp_path: Path) -> None:
    found = cgroup_layout.find_hierarchies(V2.format(root=tmp_path))
    assert found == Hierarchies(unified=tmp_path / "unified", by_controller={})
    assert found.roots() == [tmp_path / "unified"]


def test_of_a_hierarchy_that_is_mounted_twice_the_shorter_path_counts(tmp_path: Path) -> None:
    for text in (AGAIN + V1, V1 + AGAIN):
        assert cgroup_layout.find_hierarchies(text.format(root=tmp_path)).by_controller["cpu"] == tmp_path / "cpu"


def test_controllers_that_share_a_mount_are_one_tree(tmp_path: Path) -> None:
    found = cgroup_layout.find_hierarchies(f"30 20 0:25 / {tmp_path}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n")
    assert found.by_controller == dict.fromkeys(("cpu", "cpuacct"), tmp_path / "cpu,cpuacct")
    assert found.roots() == [tmp_path / "cpu,cpuacct"]


@pytest.mark.parametrize("missing", ["cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb"])
def test_on_version_1_a_cgroup_exists_when_it_does_in_every_tree_that_matters(tmp_path: Path, missing: str) -> None:
    every = ("cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb")
    hierarchies = v1(tmp_path, *every, "blkio")
    for controller in every:
        (tmp_path / controller / POD.strip("/")).mkdir(parents=True)
    assert cgroup_layout.exists(hierarchies, POD)
    (tmp_path / missing / POD.strip("/")).rmdir()
    assert not cgroup_layout.exists(hierarchies, POD)


@pytest.mark.parametrize("tree", ["cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb"])
def test_it_is_missing_when_one_of_these_trees_does_not_have_it(tmp_path: Path, tree: str) -> None:
    hierarchies = v1(tmp_path, tree, "blkio")
    assert cgroup_layout.is_missing(hierarchies, POD)
    (tmp_path / tree / POD.strip("/")).mkdir(parents=True)
    assert not cgroup_layout.is_missing(hierarchies, POD)


def test_on_version_2_it_is_missing_without_its_directory_and_not_for_a_controller(tmp_path: Path) -> None:
    hierarchies = v2(tmp_path)
    assert cgroup_layout.is_missing(hierarchies, POD)
    (tmp_path / POD.strip("/")).mkdir(parents=True)
    assert not cgroup_layout.exists(hierarchies, POD) and not cgroup_layout.is_missing(hierarchies, POD)


def test_what_cannot_be_read_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "kubepods").touch()
    assert not cgroup_layout.is_missing(v2(tmp_path), POD), "ENOTDIR: something is odd, and nothing is proven"


@pytest.mark.parametrize(
    ("has", "exists"),
    [("cpuset cpu memory hugetlb pids", True), ("cpuset cpu io memory hugetlb pids", True), ("cpuset cpu memory pids",
     False), ("", False)],
)  # fmt: skip
def test_on_version_2_a_cgroup_without_a_controller_of_the_top_counts_as_missing(
    tmp_path: Path, has: str, exists: bool
) -> None:
    hierarchies = v2(tmp_path)
    pod = tmp_path / POD.strip("/")
    pod.mkdir(parents=True)
    (pod / "cgroup.controllers").write_text(has)
    assert cgroup_layout.exists(hierarchies, POD) is exists


def test_on_version_2_what_the_top_does_not_have_is_not_asked_for(tmp_path: Path) -> None:
    hierarchies = v2(tmp_path, "cpu memory")
    pod = tmp_path / POD.strip("/")
    pod.mkdir(parents=True)
    (pod / "cgroup.controllers").write_text("memory cpu")
    assert cgroup_layout.exists(hierarchies, POD)
    assert (hierarchies.has("cpu"), hierarchies.has("pids")) == (True, False)


def test_pods_are_found_in_any_tree(tmp_path: Path) -> None:
    hierarchies = v1(tmp_path, "cpu", "memory")
    for path in ("cpu/kubepods/podone", "memory/kubepods/burstable/podtwo", "cpu/kubepods/burstable/podtwo",
                 "cpu/kubepods/besteffort/podthree/podinner", "cpu/kubepods/system"):  # fmt: skip
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "cpu/kubepods/podfile").touch()
    parents = ("/kubepods", "/kubepods/burstable", "/kubepods/besteffort")
    assert cgroup_layout.find_pods(hierarchies, parents, lambda name: pod_uid_of(name, "cgroupfs")) == {
        "one": ["/kubepods/podone"],
        "two": ["/kubepods/burstable/podtwo"],
        "three": ["/kubepods/besteffort/podthree"],
    }


def test_a_cgroup_that_a_kill_left_without_values_gets_them_until_something_is_in_it(tmp_path: Path) -> None:
    hierarchies = v1(tmp_path, "cpu", "memory")
    assert must_be_written(hierarchies, POD)
    cgroup_files.make(hierarchies, POD)
    assert must_be_written(hierarchies, POD)
    (tmp_path / "memory" / POD.strip("/") / "container").mkdir()
    assert not must_be_written(hierarchies, POD)


def test_a_process_is_something_too(tmp_path: Path) -> None:
    hierarchies = v1(tmp_path, "cpu")
    cgroup_files.make(hierarchies, POD)
    (tmp_path / "cpu" / POD.strip("/") / "cgroup.procs").write_text("1\n")
    assert not must_be_written(hierarchies, POD)


def test_version_2_passes_every_controller_on_all_the_way_down(tmp_path: Path) -> None:
    hierarchies = v2(tmp_path, "cpu memory")
    cgroup_files.make(hierarchies, POD)
    for directory in ("", "kubepods", "kubepods/burstable"):
        assert (tmp_path / directory / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert list((tmp_path / POD.strip("/")).iterdir()) == []


def test_a_parent_that_was_made_without_cpus_gets_them_before_its_child(tmp_path: Path) -> None:
    """A kill between the two steps, or a mkdir of another process; no process could ever enter."""
    above = [tmp_path, tmp_path / "kubepods", tmp_path / "kubepods" / "burstable"]
    for directory in above:
        directory.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            (directory / name).write_text("0\n" if directory == tmp_path else "\n")
    cgroup_files.make(Hierarchies(unified=None, by_controller={"cpuset": tmp_path}), "/kubepods/burstable")
    assert {(directory / "cpuset.cpus").read_text().strip() for directory in above} == {"0"}
    assert {(directory / "cpuset.mems").read_text().strip() for directory in above} == {"0"}


def test_what_was_never_made_is_removed_without_complaint(tmp_path: Path) -> None:
    cgroup_removal.remove(v1(tmp_path, "cpu"), POD)


def test_a_cgroup_goes_with_everything_below_it_and_in_every_tree(tmp_path: Path) -> None:
    hierarchies = Hierarchies(unified=None, by_controller=v1(tmp_path, "cpu", "pids").by_controller,
                              beside=tmp_path / "unified")  # fmt: skip
    for place in hierarchies.places(POD):
        (place / "container/inner").mkdir(parents=True)
    cgroup_removal.remove(hierarchies, POD)
    assert not [place for place in hierarchies.places(POD) if place.exists()]
    assert (tmp_path / "cpu/kubepods/burstable").is_dir()


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    hierarchies = v1(tmp_path, "cpu")
    (tmp_path / "cpu" / POD.strip("/")).mkdir(parents=True)
    (tmp_path / "cpu" / POD.strip("/") / "file").touch()
    with pytest.raises(OSError, match=f"cannot remove cgroup {tmp_path}/cpu{POD}: Directory not empty"):
        cgroup_removal.remove(hierarchies, POD)


def test_a_process_that_cannot_be_seen_is_not_taken_for_our_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    (tmp_path / "cgroup.procs").write_text("0\n0\n")
    cgroup_removal.kill([tmp_path])
    assert killed == []


def test_processes_that_turn_up_while_a_cgroup_is_emptied_are_killed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def kill(pid: int, _: int) -> None:  # each of the first two forks before it ends
        killed.append(pid)
        (tmp_path / "cgroup.procs").write_text(f"{pid + 1}\n" if pid < 4003 else "")

    (tmp_path / "cgroup.procs").write_text("4001\n")
    monkeypatch.setattr(os, "kill", kill)
    cgroup_removal.kill([tmp_path])
    assert killed == [4001, 4002, 4003]


def test_a_controller_that_cannot_be_passed_down_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses a write that names such a controller, whichever others it names."""
    passed: list[str] = []
    write_text = Path.write_text

    def write(path: Path, text: str) -> int:
        if path.name != "cgroup.subtree_control":
            return write_text(path, text)
        if "+cpuset" in text:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        passed.append(text)
        return len(text)

    monkeypatch.setattr(Path, "write_text", write)
    cgroup_files.make(v2(tmp_path, "cpuset cpu memory pids"), "kubepods")
    assert passed == ["+cpu", "+memory", "+pids"]
