"""A run of tests with a machine that is killed or whose machine hangs: the failure is shown, and nothing stays here."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.machine.left import left_of, network_devices, processes_of
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT
from tools.leftovers import wait_until

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

_MAX_BOOT_SECONDS = 10 * WAIT_SECONDS  # the root may have to be built before
_TEST = """\
import os
from pathlib import Path
from tests.machine.machine import Machine
from tests.machine.network import MachineNetwork
from tests.machine.root import cached_root

def test_waits():
    with (
        MachineNetwork(with_host=True) as network,
        Machine(Path(PLACE, "machine"), network=network, root=cached_root("install")) as machine,
    ):
        Path(PLACE, "scratch").write_text(str(os.getpid()))
        Path(PLACE, "scratch").rename(Path(PLACE, "booted"))
        machine.call("sleep", "1000")
"""


def test_the_queue_shows_a_machine_that_hangs_and_a_killed_run_and_nothing_of_them_stays(tmp_path: Path) -> None:
    devices = network_devices()
    for name in ("hangs", "killed"):  # one process runs both, in this order
        (tmp_path / name).mkdir()
        (tmp_path / f"test_{name}.py").write_text(_TEST.replace("PLACE", repr(str(tmp_path / name))))
    command = [sys.executable, "-m", "tests.queue", str(tmp_path), f"--build={tmp_path}/build"]
    with subprocess.Popen(command, cwd=CHECKOUT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as queue:
        assert queue.stdout is not None
        pid, machine = wait_for_boot(tmp_path / "hangs"), tmp_path / "hangs/machine"
        assert left_of(machine, devices)
        began = time.monotonic()
        for process in processes_of(machine):
            os.kill(process, signal.SIGSTOP)
        output = ""
        while "no sign of progress for 30 s; the console's end:" not in output:
            line = queue.stdout.readline()
            assert line, output
            output += line
        assert time.monotonic() - began < WAIT_SECONDS
        assert wait_for_boot(tmp_path / "killed") == pid
        os.kill(pid, signal.SIGKILL)
        rest = queue.stdout.read()
    assert queue.returncode == 1
    assert "multi-user.target" in rest, rest  # of the console
    assert re.search(r"killed by SIGKILL in .*test_killed.py::test_waits", rest), rest

    def left() -> list[object]:
        return [one for name in ("hangs", "killed") for one in left_of(tmp_path / name / "machine", devices)]

    assert wait_until(lambda: not left(), WAIT_SECONDS), left()


def wait_for_boot(directory: Path) -> int:
    """Wait until the machine of that directory has booted; the process of its test."""
    assert wait_until((directory / "booted").exists, _MAX_BOOT_SECONDS), directory
    return int((directory / "booted").read_text())
