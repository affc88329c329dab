"""The cgroup driver systemd with a real systemd: process 1 of its own namespaces, with agent and containerd in them."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machines.systemd_machine import SystemdMachine
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(1000)]


@pytest.fixture
def machine() -> Iterator[SystemdMachine]:
    with tempfile.TemporaryDirectory(prefix="bks", dir="/tmp") as directory, SystemdMachine(Path(directory)) as booted:
        yield booted


def test_pods_run_in_slices(machine: SystemdMachine) -> None:
    tests = CHECKOUT / "tests/e2e/systemd_pods.py"
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-x", "--durations=8", "-p", "no:cacheprovider")
    command = machine.joined(*pytest_, str(tests))
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=15 * WAIT_SECONDS)
    print(done.stdout[-20_000:], done.stderr[-5_000:])
    assert done.returncode == 0
