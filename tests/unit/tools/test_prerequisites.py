"""What is missing on a machine is named as packages; a user who may not install gets the list."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import prerequisites
from tools.home import CHECKOUT
from tools.prerequisites import Prerequisite, missing_packages


def test_each_missing_package_is_named_once_and_only_for_the_lanes_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = (
        Prerequisite("no-such-command", "one", "run"),
        Prerequisite("no-such-neighbour", "one", "run"),
        Prerequisite(str(tmp_path / "absent"), "two", "run"),
        Prerequisite(str(tmp_path), "present", "run"),
        Prerequisite("sh", "present", "run"),
        Prerequisite("no-such-tester", "three", "test"),
    )
    monkeypatch.setattr(prerequisites, "PREREQUISITES", needed)
    assert missing_packages("run") == ["one", "two"]
    assert missing_packages("run", "test") == ["one", "two", "three"]


def test_only_tests_of_machines_need_what_builds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert "mmdebstrap" not in missing_packages("run", "test")
    assert missing_packages("machine") == ["mmdebstrap", "e2fsprogs"]


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """tools/install-missing on a machine that lacks a package, for a user who is not root."""
    script = tmp_path / "install-missing"
    shutil.copy(CHECKOUT / "tools" / "install-missing", script)
    (tmp_path / "prerequisites.py").write_text("print('runc')\n")
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    return script


def run(installer: Path, *lanes: str, ci: str) -> tuple[int, str]:
    environment = {**os.environ, "PATH": f"{installer.parent}:{os.environ['PATH']}", "CI": ci}
    done = subprocess.run([installer, *lanes], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_user_who_may_not_install_gets_the_list(installer: Path) -> None:
    code, output = run(installer, "run", ci="")
    assert code == 1
    assert output == "bulkhead: missing on this machine: runc (install the packages as root: apt-get install runc)\n"


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_tests_go_on_without_what_is_missing_but_not_in_ci(installer: Path, ci: str, code: int) -> None:
    assert run(installer, "run", "test", ci=ci)[0] == code


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_without_package_sources_root_gets_the_list_and_ci_fails(installer: Path, ci: str, code: int) -> None:
    (installer.parent / "id").write_text("#!/bin/sh\necho 0\n")
    (installer.parent / "apt-get").write_text("#!/bin/sh\necho E: Temporary failure resolving >&2\nexit 100\n")
    (installer.parent / "apt-get").chmod(0o755)
    returned, output = run(installer, "run", "test", "machine", ci=ci)
    assert returned == code
    assert output.splitlines()[-1].startswith("bulkhead: missing on this machine: runc (install the packages as root")
