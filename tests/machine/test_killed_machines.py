"""A run of tests with a machine that is killed or whose machine hangs: the failure is shown, and nothing stays here."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.machine.left import left_of, processes_of
from tests.machine.root import Root
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT
from tools.leftovers import wait_until

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

_MAX_BOOT_SECONDS = 10 * WAIT_SECONDS
_TEST = """\
import os
import socket
from pathlib import Path
from tests.machine.machine import Machine
from tests.machine.network import MachineNetwork
from tests.machine.root import cached_root

def test_waits():
    try:
        with (
            MachineNetwork(with_host=True) as network,
            Machine(Path(PLACE, "machine"), network=network, root=cached_root("install")) as machine,
        ):
            note = f"{os.getpid()} {socket.if_nametoindex(network.host_device)}"
            Path(PLACE, "scratch").write_text(note)
            Path(PLACE, "scratch").rename(Path(PLACE, "booted"))
            machine.call("sleep", "1000")
    finally:
        Path(PLACE, "ended").touch()
"""


def test_the_queue_shows_a_machine_that_hangs_and_a_killed_run_and_nothing_of_them_stays(
    installed_root: Root, tmp_path: Path
) -> None:
    del installed_root  # built, so that the machines boot at once
    for name in ("hangs", "killed"):  # one process runs both, in this order
        (tmp_path / name).mkdir()
        (tmp_path / f"test_{name}.py").write_text(_TEST.replace("PLACE", repr(str(tmp_path / name))))
    with queue_of(tmp_path) as queue:
        assert queue.stdout is not None
        pid, hung_interface = wait_for_boot(tmp_path / "hangs", queue)
        machine = tmp_path / "hangs/machine"
        assert left_of(machine, [hung_interface])
        began = time.monotonic()
        for process in processes_of(machine):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        output = ""
        while "no sign of progress for 30 s; the console's end:" not in output:
            line = queue.stdout.readline()
            assert line, output
            output += line
        assert time.monotonic() - began < WAIT_SECONDS
        killed, killed_interface = wait_for_boot(tmp_path / "killed", queue)
        assert killed == pid
        os.kill(pid, signal.SIGKILL)
        rest = queue.stdout.read()
    assert queue.returncode == 1
    assert "multi-user.target" in rest, rest  # of the console
    assert re.search(r"killed by SIGKILL in .*test_killed.py::test_waits", rest), rest
    interfaces = (hung_interface, killed_interface)

    def left() -> list[object]:
        return [one for name in ("hangs", "killed") for one in left_of(tmp_path / name / "machine", interfaces)]

    assert wait_until(lambda: not left(), WAIT_SECONDS), left()


@contextmanager
def queue_of(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run the tests of a directory; what still runs at the end is killed."""
    command = [sys.executable, "-m", "tests.queue", str(directory), f"--build={directory}/build"]
    with subprocess.Popen(command, cwd=CHECKOUT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as queue:
        try:
            yield queue
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):  # the second one kills
                queue.send_signal(number)
            try:
                print(queue.communicate(timeout=WAIT_SECONDS)[0])
            except subprocess.TimeoutExpired:
                queue.kill()


def wait_for_boot(directory: Path, queue: "subprocess.Popen[str]") -> tuple[int, int]:
    """Wait until the machine of that directory has booted; the process of its test and the number of its interface.
    AssertionError where the test or the queue ends before."""
    booted, ended = directory / "booted", directory / "ended"
    wait_until(lambda: booted.exists() or ended.exists() or queue.poll() is not None, _MAX_BOOT_SECONDS)
    assert booted.exists(), f"the machine of {directory} does not boot"
    pid, interface = map(int, booted.read_text().split())
    return pid, interface
