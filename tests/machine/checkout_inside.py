"""The checkout in a machine of its own: tests of other levels run in there, on its kernel, cgroups and systemd.

The machine has the Python and the container runtime of its Debian; the packages that tests need are those of our
Python, which it is shown. It runs a copy of the checkout on its own disk, where it keeps what it compiles.
"""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.machine.machine import Machine
from tests.support.waits.deadline import SLOWNESS
from tools.home import CHECKOUT

PLACE = "/opt/checkout"
# What a machine is shown (`shown` of Machine), by the name below /host.
SHOWN = {
    "checkout": CHECKOUT,
    "packages": Path(sysconfig.get_path("purelib")),
    "programs": Path(sys.executable).parent,
    "bin": Path("/bin"),
}
_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_ALL_PASSED = re.compile(r"\d+ passed(, \d+ deselected)?(, \d+ warnings?)? in .*")
_MAX_FILE_SECONDS = 1500.0 * SLOWNESS  # for one file of tests; pytest's own limit out here is longer
# What takes one second out here takes several in there, though Python's own work takes the same time.
_VARIABLES = {"CI": "true", "TEST_CONTAINERD": "bookworm", "TEST_PREREQUISITES": "run", "TEST_MIN_SLOWNESS": "3"}
_LAY_OUT = f"""\
set -e
venv={PLACE}/.venv
mkdir -p $venv/bin $venv/lib/{_VERSION}/site-packages
cd /host/checkout
tar -cf - $(ls | grep -vx build) | tar -C {PLACE} -xf -
printf 'home = /usr/bin\\ninclude-system-site-packages = false\\n' > $venv/pyvenv.cfg
ln -s /usr/bin/{_VERSION} $venv/bin/python
for program in supervisord supervisorctl bulkhead kubelet; do
    sed "1s|.*|#!$venv/bin/python|" /host/programs/$program > $venv/bin/$program
    chmod +x $venv/bin/$program
done
printf '%s\\n' {PLACE} /host/packages > $venv/lib/{_VERSION}/site-packages/host.pth
cp /host/bin/busybox /bin/busybox
"""


def lay_out(machine: Machine) -> None:
    """Put the checkout into the machine, which is shown SHOWN and has the root `install`."""
    machine.must("sh", "-c", _LAY_OUT)


def run_tests(machine: Machine, file: str, driver: str) -> None:
    """Run a file of tests in there, those that have a choice with this cgroup driver, and print what pytest prints.
    AssertionError unless all pass and none is skipped."""
    command = f"cd {PLACE} && exec .venv/bin/python -m pytest -p no:cacheprovider --durations=5 {file}"
    done = machine.run("sh", "-c", command, seconds=_MAX_FILE_SECONDS, TEST_CGROUP_DRIVER=driver, **_VARIABLES)
    print(done.stdout, done.stderr)
    assert all_passed(done), f"{file} in the machine: {_last_line(done.stdout)}"


def all_passed(done: "subprocess.CompletedProcess[str]") -> bool:
    """Return whether this run of pytest has passed every test and skipped none."""
    return done.returncode == 0 and _ALL_PASSED.fullmatch(_last_line(done.stdout)) is not None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].strip("= ")
