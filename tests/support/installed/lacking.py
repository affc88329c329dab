"""The rule for what a machine lacks: in CI a test fails for it, elsewhere it skips; both name what to install.

TEST_PREREQUISITES names the lanes of tools/prerequisites.py that a test marked `root` needs, by default run and test.
"""

import os
import shutil
from typing import NoReturn

import pytest

from tools.prerequisites import PREREQUISITES, missing_packages


def lack(reason: str) -> NoReturn:
    """Skip this test, or fail it in CI, because the machine lacks what the line names; it also says how to get it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require_command(name: str) -> None:
    """Require this command for the test; it must be among the prerequisites so that `make test` installs it."""
    packages = [item.package for item in PREREQUISITES if item.name == name]
    assert packages, f"{name} is not named by tools/prerequisites.py"
    if shutil.which(name) is None:
        lack(f"{name} is missing on this machine: apt-get install {packages[0]}")


def lacking_for_root(*, runtime: bool) -> str:
    """Return why this machine cannot run a test marked `root`, "" when it can. Without `runtime` root is enough."""
    if os.geteuid() != 0:
        return "needs root: sudo make test"
    lanes = os.environ.get("TEST_PREREQUISITES", "run test").split()
    missing = missing_packages(*lanes) if runtime else []
    return f"missing on this machine: apt-get install {' '.join(missing)}" if missing else ""
