"""Machines of tests: what counts as left of one, the order of their tests, and what is said where none can be had."""

import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.machine import conftest, root
from tests.machine.left import left_of

NO_DEBIAN = "machine-root: Debian bookworm cannot be had"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """The command lines of tools/machine-root, which fails, on a machine that has all else."""
    (tmp_path / "tun").touch()
    monkeypatch.setattr(root, "missing_packages", lambda *_: [])
    monkeypatch.setattr(root, "_TUN", tmp_path / "tun")
    monkeypatch.setattr(root, "_failures", {})
    commands = []

    def run(command: tuple[str, ...], **_: Any) -> "subprocess.CompletedProcess[str]":
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", f"{NO_DEBIAN}\n")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_root_that_cannot_be_had_is_tried_once_for_all_tests(
    builds: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    for _ in range(3):
        with pytest.raises(outcome, match=f"^{NO_DEBIAN}$"):
            root.cached_root("install")
    assert len(builds) == 1
    with pytest.raises(outcome, match=f"^{NO_DEBIAN}$"):
        root.cached_root("install", "nfs-common")  # another root
    assert len(builds) == 2


def test_a_machine_without_tun_builds_no_root_and_names_the_remedy(
    builds: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(root, "_TUN", tmp_path / "none")
    with pytest.raises(
        pytest.fail.Exception, match=r"none for their network: No such file or directory \(modprobe tun"
    ):
        root.cached_root("install")
    assert builds == []


def test_an_interface_of_another_run_is_not_left_of_a_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (7, "mach3"), (9, "mach7")])
    assert left_of(tmp_path, [7]) == ["mach3"]
    assert left_of(tmp_path, [8]) == []


def test_tests_of_the_shared_node_come_last_and_all_others_stay_in_order() -> None:
    here, there = Path(conftest.__file__).parent, Path("tests/e2e")
    named = [
        ("apparmor", here, ["cluster"]), ("elsewhere", there, ["cluster"]), ("killed", here, ["tmp_path"]),
        ("cluster", here, ["package", "cluster"]), ("v2", here, ["machine"]),
    ]  # fmt: skip
    items: Any = [SimpleNamespace(name=n, path=place / f"test_{n}.py", fixturenames=f) for n, place, f in named]
    conftest.pytest_collection_modifyitems(items)
    assert [item.name for item in items] == ["elsewhere", "killed", "v2", "apparmor", "cluster"]
