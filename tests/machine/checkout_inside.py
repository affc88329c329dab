"""The checkout in a machine of its own: tests of other levels run in there, on its kernel, cgroups and systemd.

The machine has the Python and the container runtime of its Debian; it is shown the packages that tests need, those of
our own environment where the Python is of the same version. It runs a copy of the checkout on its own disk, where it
keeps what it compiles.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.machine.machine import Machine
from tests.machine.root import machine_interpreter, machine_python
from tests.support.waits.deadline import SLOWNESS
from tools.home import CHECKOUT

PLACE = "/opt/checkout"
_JUNIT = "/opt/junit.xml"
_ALL_PASSED = re.compile(r"\d+ passed(, \d+ deselected)?(, \d+ warnings?)? in .*")
_MAX_FILE_SECONDS = 1500.0 * SLOWNESS  # for one file of tests; pytest's own limit out here is longer
# What takes one second out here takes several in there, though Python's own work takes the same time.
_VARIABLES = {
    "CI": "true",
    "TEST_API_SERVER": "double",
    "TEST_CONTAINERD": "bookworm",
    "TEST_MIN_SLOWNESS": "3",
    "TEST_PREREQUISITES": "run",
}
# The argument is the name of the machine's Python.
_LAY_OUT = f"""\
set -e
venv={PLACE}/.venv
mkdir -p $venv/bin $venv/lib/$1/site-packages
cd /host/checkout
tar -cf - $(ls | grep -vx build) | tar -C {PLACE} -xf -
printf 'home = /usr/bin\\ninclude-system-site-packages = false\\n' > $venv/pyvenv.cfg
ln -s /usr/bin/$1 $venv/bin/python
for program in supervisord supervisorctl bulkhead kubelet; do
    sed "1s|.*|#!$venv/bin/python|" /host/programs/$program > $venv/bin/$program
    chmod +x $venv/bin/$program
done
printf '%s\\n' {PLACE} /host/packages /host/own > $venv/lib/$1/site-packages/host.pth
cp /host/bin/busybox /bin/busybox
"""


def shown_directories() -> dict[str, Path]:
    """What such a machine is shown (`shown` of Machine), by the name below /host."""
    programs, own = Path(sys.executable).parent, Path(sysconfig.get_path("purelib"))  # also the version of the checkout
    packages = _packages(interpreter) if (interpreter := machine_interpreter()) else own
    return {"checkout": CHECKOUT, "packages": packages, "own": own, "programs": programs, "bin": Path("/bin")}


def _packages(interpreter: str) -> Path:
    """The directory in the cache with the packages of both lock files for this Python; filled first where there is
    none. AssertionError where that fails."""
    locks = [CHECKOUT / "requirements.lock", CHECKOUT / "requirements-dev.lock"]
    locked = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bulkhead"
    kept, scratch = (cache / f"packages-{machine_python()}-{locked}{end}" for end in ("", f".{os.getpid()}"))
    if not kept.exists():
        uv = shutil.which("uv") or str(CHECKOUT / ".uv/bin/uv")
        options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        options += [f"--python={interpreter}", f"--target={scratch}", *(f"--requirements={lock}" for lock in locks)]
        done = subprocess.run([uv, "pip", "install", *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        scratch.rename(kept)
    return kept


def lay_out(machine: Machine) -> None:
    """Put the checkout into the machine, which is shown `shown_directories` and has the root `install`."""
    machine.must("sh", "-c", _LAY_OUT, "sh", f"python{machine_python()}")


def run_tests(machine: Machine, file: str, driver: str) -> list[tuple[str, float]]:
    """Run a file of tests in there, those that have a choice with this cgroup driver, and print what pytest prints.
    Return the name of each test and its seconds, with its fixtures. AssertionError unless all pass and none is
    skipped."""
    options = f"-p no:cacheprovider --durations=5 --junit-xml={_JUNIT}"
    command = f"cd {PLACE} && exec .venv/bin/python -m pytest {options} {file}"
    done = machine.run("sh", "-c", command, seconds=_MAX_FILE_SECONDS, TEST_CGROUP_DRIVER=driver, **_VARIABLES)
    print(done.stdout, done.stderr)
    assert all_passed(done), f"{file} in the machine: {_last_line(done.stdout)}"
    cases = ET.fromstring(machine.must("cat", _JUNIT)).iter("testcase")
    return [(case.get("name", ""), float(case.get("time", "0"))) for case in cases]


def all_passed(done: "subprocess.CompletedProcess[str]") -> bool:
    """Return whether this run of pytest has passed every test and skipped none."""
    return done.returncode == 0 and _ALL_PASSED.fullmatch(_last_line(done.stdout)) is not None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].strip("= ")
