"""`bulkhead takeover` and `give-back` on a node of kubeadm's files, with a real systemd as process 1 of its own
namespaces, the Go kubelet and containerd in them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters.control_plane import assets
from tests.support.machines.systemd_machine import SystemdMachine
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(2700)]

NIGHT = bool(os.environ.get("NIGHT"))
_NOT_GIVEN = ("BULKHEAD", "KUBELET", "NOTIFY", "WATCHDOG", "CRASH_AT")
# The machine's own: nothing of it is on this one's disk. The Go kubelet sets kernel parameters, and puts them back.
_PLACES = """\
set -e
mkdir {directory}/units-etc
mount --bind {directory}/units-etc /etc/systemd/system
cp --archive /usr/lib/systemd/system {directory}/units-usr
mount --bind {directory}/units-usr /usr/lib/systemd/system
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
for part in /proc/sys/kernel /proc/sys/vm; do mount -o remount,bind,rw $part; done
systemctl daemon-reload
"""


@pytest.fixture
def machine() -> Iterator[SystemdMachine]:
    with tempfile.TemporaryDirectory(prefix="bkt", dir="/tmp") as directory, SystemdMachine(Path(directory)) as booted:
        booted.run("bash", "-c", _PLACES.format(directory=directory))
        yield booted


def test_a_node_of_kubeadm_is_taken_over_and_given_back(machine: SystemdMachine) -> None:
    tests = CHECKOUT / "tests/e2e/takeover_command_on_systemd.py"
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-x", "-s", "--durations=12", "-p", "no:cacheprovider")
    command = machine.joined(*pytest_, str(tests))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(_NOT_GIVEN)},
        "KUBEBUILDER_ASSETS": str(assets()),
        "TAKEOVER_PODS": os.environ.get("TAKEOVER_PODS") or ("20" if NIGHT else "5"),
    }
    with (machine.directory / "output").open("wb+") as output:
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=output, stderr=output, env=environment)
        try:
            code = process.wait(2600 if NIGHT else 1500)
        except subprocess.TimeoutExpired:
            code = None
            process.kill()
            process.wait()
        output.seek(0)
        shown = output.read().decode(errors="replace")
    print(shown[-40_000:])
    assert code == 0, f"the tests in the machine {'hang' if code is None else 'fail'}:\n{cause(shown)}"


def cause(output: str) -> str:
    """The five lines of pytest's output that show most of why it failed."""
    lines = output.strip().splitlines()
    errors = [line[:500] for line in lines if line.startswith("E  ")]
    return "\n".join(errors[:5] or [line[:500] for line in lines[-5:]])
