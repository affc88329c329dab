"""The tests in machines where no machine can be had: each says why, at once, and fails in CI as it skips elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]

_IN_MACHINES = re.search(r"IN_MACHINES = \$\(addprefix (\S+),(.*)\)", (CHECKOUT / "Makefile").read_text())


@pytest.mark.parametrize(("ci", "outcome"), [("true", "failed|errors?"), ("", "skipped")])
def test_every_test_of_make_test_in_machines_says_why_at_once(tmp_path: Path, ci: str, outcome: str) -> None:
    assert _IN_MACHINES is not None
    files = [_IN_MACHINES[1] + name for name in _IN_MACHINES[2].split()]
    variables = {**os.environ, "CI": ci, "PATH": str(tmp_path / "no-programs"), "TEST_PREREQUISITES": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", f"--basetemp={tmp_path}/pytest"]
    done = subprocess.run([*command, *files], cwd=CHECKOUT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if ci else 0), done.stdout
    counts = re.findall(r"(\d+) ([a-z]+)", done.stdout.splitlines()[-1].split(" in ")[0])
    assert counts and all(re.fullmatch(outcome, kind) or kind == "deselected" for _, kind in counts), done.stdout
    assert re.search(r"missing on this machine: apt-get install .*mmdebstrap", done.stdout), done.stdout
    assert "release" not in {path.name[:7] for path in (tmp_path / "pytest").glob("*")}  # no package was built before
