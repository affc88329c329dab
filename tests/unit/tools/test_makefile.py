"""What `make` does where a part of its work fails; the programs that it runs are scripts of a test."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with the Makefile; nothing is missing on the machine, and containerd cannot be fetched."""
    shutil.copy(CHECKOUT / "Makefile", tmp_path)
    (tmp_path / "tools").mkdir()
    write_script(tmp_path / "tools/install-missing", 'echo "$*" >> installed')
    write_script(tmp_path / "tools/newer-containerd", "echo debian-package: no archive >&2; exit 1")
    return tmp_path


def write_script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/bash\n{text}\n")
    file.chmod(0o755)


def make(tree: Path, *arguments: str, ci: str = "") -> tuple[int, list[str]]:
    """The exit code and the lines of Bulkhead on standard error."""
    command = ["make", "--old-file=venv", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "NIGHT")}
    done = subprocess.run(
        command,
        cwd=tree,
        env={**environment, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]


def test_tests_go_on_with_the_containerd_that_is_installed_but_not_in_ci(tree: Path) -> None:
    line = "bulkhead: the tests use the containerd that is installed: debian-package: no archive"
    assert make(tree, "test-deps") == (0, [line])
    line = "bulkhead: CI tests with the containerd of Debian sid: debian-package: no archive"
    assert make(tree, "test-deps", ci="true") == (2, [line])


def test_a_run_installs_what_machines_are_built_with_and_the_night_what_it_needs_besides(tree: Path) -> None:
    make(tree, "test-deps")
    make(tree, "test-deps", "NIGHT=1")
    assert (tree / "installed").read_text().splitlines() == ["run test machine", "run test machine night"]
