"""Which cgroup a process is in, and which processes are moved into the cgroups that the configuration names."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.cgroups import process_placement
from services.podsync.adapters.cgroups.process_placement import place, place_root_processes
from services.podsync.controllers import process_placement as controller
from services.podsync.core.cgroups.process_cgroup import cgroup_of_process, placement_name
from shared.config.effective import EffectiveConfig, EmbeddedContainerd
from shared.host.cgroup_layout import Hierarchies
from shared.process.identity import identity_of
from tests.unit.podsync.cgroups.test_cgroups import v1, v2

SPLIT = "4:memory:/a\n3:cpu,cpuacct:/b\n1:name=systemd:/a\n0::/\n"
UNIT = "4:memory:/\n3:cpu,cpuacct:/\n1:name=systemd:/system.slice/kubelet.service\n0::/\n"
PLAIN = "4:memory:/a\n3:cpu,cpuacct:/a\n"


@pytest.mark.parametrize(
    ("text", "on_v2", "path"),
    [
        ("0::/a/b\n", True, "/a/b"),
        ("", True, ""),
        (PLAIN, False, "/a"),
        (UNIT, False, "/system.slice/kubelet.service"),
        (SPLIT, False, ""),
        ("no colons\n", False, ""),
        ("0::/a:b\n", True, "/a:b"),
    ],
)
def test_a_process_is_in_the_cgroup_that_accounts_its_cpu_and_memory(text: str, on_v2: bool, path: str) -> None:
    assert cgroup_of_process(text, v2=on_v2) == path


@pytest.mark.parametrize(
    ("configured", "name"),
    [("", ""), ("/kubelet", "/kubelet"), ("kubelet", "/kubelet"), ("/a/../../etc", "/etc"), ("//a//b/", "/a/b")],
)
def test_a_configured_cgroup_is_a_path_below_the_mount_points(configured: str, name: str) -> None:
    assert placement_name(configured) == name


def proc_of(root: Path, process: int, text: str, *, kernel: bool = False) -> Path:
    directory = root / "proc" / str(process)
    directory.mkdir(parents=True)
    (directory / "cgroup").write_text(text)
    if not kernel:
        (directory / "exe").symlink_to("/bin/sh")
    return root / "proc"


@pytest.mark.parametrize("on_v2", [False, True])
def test_a_process_enters_the_cgroup_in_every_hierarchy(tmp_path: Path, on_v2: bool) -> None:
    (tmp_path / "cg").mkdir()
    trees = v2(tmp_path / "cg") if on_v2 else v1(tmp_path / "cg", "cpu", "memory", "devices", "systemd")
    proc = proc_of(tmp_path, 7, "0::/\n" if on_v2 else "2:cpu:/\n1:memory:/\n")
    assert place(trees, "/agent", 7, proc)
    assert {root: (root / "agent/cgroup.procs").read_text() for root in trees.roots()} == dict.fromkeys(
        trees.roots(), "7"
    )


def test_a_process_that_is_there_or_has_ended_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cg").mkdir()
    trees = v1(tmp_path / "cg", "cpu", "memory")
    proc = proc_of(tmp_path, 7, "2:cpu:/agent\n1:memory:/agent\n")
    assert not place(trees, "/agent", 7, proc)
    assert not place(trees, "/agent", 8, proc)
    assert not (tmp_path / "cg/cpu/agent").exists()


def test_a_refusal_names_the_process_and_the_cgroup(tmp_path: Path) -> None:
    (tmp_path / "cg").mkdir()
    trees = v1(tmp_path / "cg", "cpu", "memory")
    (tmp_path / "cg/memory/agent/cgroup.procs").mkdir(parents=True)
    with pytest.raises(OSError, match="cannot move process 7 into cgroup /agent: Is a directory"):
        place(trees, "/agent", 7, proc_of(tmp_path, 7, "2:cpu:/\n1:memory:/\n"))


Rounds = Callable[[list[list[int]]], Hierarchies]


@pytest.fixture
def root_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    """Lays out trees whose root has these processes, one list for each time it is read."""

    def lay_out(rounds: list[list[int]]) -> Hierarchies:
        (tmp_path / "cg").mkdir()
        monkeypatch.setattr(process_placement, "processes_in", lambda _: rounds.pop(0) if rounds else [])
        return v1(tmp_path / "cg", "cpu", "memory", "devices")

    return lay_out


def test_processes_of_the_root_are_moved_but_not_the_first_nor_the_kernel_s(tmp_path: Path, root_has: Rounds) -> None:
    trees = root_has([[1, 2, 50], [1, 2, 51]])
    for process, kernel in ((1, False), (2, True), (50, False), (51, False)):
        proc_of(tmp_path, process, "2:cpu:/\n1:memory:/\n", kernel=kernel)
    assert place_root_processes(trees, "/system", tmp_path / "proc") == 2
    assert (tmp_path / "cg/devices/system/cgroup.procs").read_text() == "51"


def test_every_process_of_the_root_is_tried_before_a_refusal_is_reported(tmp_path: Path, root_has: Rounds) -> None:
    trees = root_has([[50, 51]])
    for process in (50, 51):
        proc_of(tmp_path, process, "2:cpu:/\n1:memory:/\n")
    (tmp_path / "cg/devices/system/cgroup.procs").mkdir(parents=True)
    with pytest.raises(OSError, match="process 51"):
        place_root_processes(trees, "/system", tmp_path / "proc")
    assert (tmp_path / "cg/cpu/system/cgroup.procs").read_text() == "51"


class Placed:
    """An agent's run directory, and what was moved where."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
        places: dict[str, Any] = {name: str(root / name) for name in ("root_dir", "run_dir", "log_dir", "cert_dir")}
        self.root, self.moves, self.refused = root, list[tuple[str, int]](), set[str]()
        self.troubles: list[str | None] = []
        monkeypatch.setattr(controller, "place", self._place)
        monkeypatch.setattr(controller, "place_root_processes", lambda _, name: self._place(None, name, 0))
        monkeypatch.setattr(controller, "supervisor_generation", lambda: f"{identity_of(os.getppid())}/2")
        monkeypatch.setattr(controller, "supervisor_process", os.getppid)
        monkeypatch.setattr(controller, "children_of", lambda process: [process * 10, process * 10 + 1])
        config = EffectiveConfig(node_name="n", **places, **config)  # type: ignore[assignment]
        trees = Hierarchies(unified=root, by_controller={})
        self.placement = controller.ProcessPlacement(config, trees, lambda _, line: self.troubles.append(line))  # type: ignore[arg-type]

    def _place(self, _: object, name: str, process: int) -> bool:
        if name in self.refused:
            raise OSError(f"cannot move process {process} into cgroup {name}: Device or resource busy")
        self.moves.append((name, process))
        return True


async def test_supervisord_and_every_running_service_enter_the_agent_s_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = Placed(tmp_path, monkeypatch, kubelet_cgroups="/agent")
    await placed.placement.place_all()
    supervisord = os.getppid()
    assert placed.moves == [("/agent", process) for process in (supervisord, supervisord * 10, supervisord * 10 + 1)]
    assert placed.troubles == [None]


@pytest.mark.parametrize("configured", [{"runtime_cgroups": "/x"}, {"kubelet_cgroups": "/x"}])
async def test_the_embedded_containerd_enters_the_runtime_s_cgroup_or_else_the_agent_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: dict[str, str]
) -> None:
    embedded = EmbeddedContainerd(
        root="r", state="s", socket="c.sock", config_file=str(tmp_path / "config.toml"), cni_conf_dir="d"
    )
    (tmp_path / "process").write_text(identity_of(os.getpid()))
    placed = Placed(tmp_path, monkeypatch, embedded_containerd=embedded, **configured)
    await placed.placement.place_all()
    (tmp_path / "process").write_text("another boot/1/1")
    await placed.placement.place_all()
    (tmp_path / "process").unlink()
    await placed.placement.place_all()
    assert placed.moves.count(("/x", os.getpid())) == 1


def test_the_processes_that_a_process_has_started_are_listed() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        try:
            assert child.pid in process_placement.children_of(os.getpid())
        finally:
            child.kill()
    assert process_placement.children_of(child.pid) == []


def test_a_process_that_ends_while_it_is_read_has_started_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object) -> Iterator[Path]:
        raise FileNotFoundError

    (tmp_path / "7/task/7").mkdir(parents=True)
    monkeypatch.setattr(Path, "glob", ended)
    assert process_placement.children_of(7, tmp_path) == []


async def test_a_runtime_that_others_run_is_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = Placed(tmp_path, monkeypatch, runtime_cgroups="/system.slice/containerd.service")
    await placed.placement.run()
    assert placed.moves == [] and placed.troubles == []


async def test_what_cannot_be_moved_is_a_trouble_until_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = Placed(tmp_path, monkeypatch, kubelet_cgroups="/agent", system_cgroups="/system")
    placed.refused = {"/system"}
    await placed.placement.place_all()
    placed.refused = set()
    await placed.placement.place_all()
    assert placed.troubles == ["cannot move process 0 into cgroup /system: Device or resource busy", None]
    assert placed.moves.count(("/agent", os.getppid())) == 2 and ("/system", 0) in placed.moves
