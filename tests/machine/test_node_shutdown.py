"""`systemctl poweroff` on a real systemd: logind waits for the pods by their priority, and they run again after the
boot."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.machine import Machine
from tests.machine.root import Root
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

_MAX_SECONDS = 900.0  # of one step in there
_COPIED = ("tests", "tools")  # the package has the rest


@pytest.fixture(scope="module")
def machine(installed_root: Root, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    directory = tmp_path_factory.mktemp("shutdown") / "machine"
    with Machine(directory, root=installed_root) as machine:
        shutil.copy(package, machine.shared / "bulkhead.deb")
        for name in _COPIED:
            shutil.copytree(CHECKOUT / name, machine.shared / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy("/bin/busybox", machine.shared)
        machine.must("cp", "/host/busybox", "/bin/busybox")
        machine.must("dpkg", "--install", "/host/bulkhead.deb")
        yield machine


def inside(machine: Machine, step: str) -> str:
    """Do this step of `tests.machine.inside.shutdowns` in there; return what it prints."""
    command = ("/opt/bulkhead/bin/python", "-P", "-m", "tests.machine.inside.shutdowns", step)
    done: subprocess.CompletedProcess[str] = machine.run(*command, seconds=_MAX_SECONDS, PYTHONPATH="/host")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_pods_stop_by_priority_before_the_machine_goes_off_and_run_again_after_the_boot(machine: Machine) -> None:
    inside(machine, "begin")
    machine.reboot()
    inside(machine, "check")
