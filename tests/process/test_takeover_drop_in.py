"""The loop of a takeover with a real systemd: in whichever directories the files of the unit are, systemd loads what
the loop has written and forgets what it has removed, also where a command is killed between its steps."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.machines.systemd_machine import SystemdMachine
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

OF_PACKAGE, OF_OPERATOR = Path("/usr/lib/systemd/system"), Path("/etc/systemd/system")
KILLED = -9
_PROGRAM = "#!/bin/sh\nwhile :; do sleep 1000; done\n"
_UNIT = "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={directory}/none\nRestart=always\n"
_DROP_IN = "[Service]\nEnvironment=FLAGS=--v=2\nExecStart=\nExecStart={directory}/own/kubelet $FLAGS\n"
_OF_THE_MACHINE = """\
set -e
mkdir {directory}/etc
mount --bind {directory}/etc /etc/systemd/system
cp --archive /usr/lib/systemd/system {directory}/lib
mount --bind {directory}/lib /usr/lib/systemd/system
systemctl daemon-reload
"""
# Runs commands, each in a process of its own, and prints for each: the exit code, or the signal as a negative number,
# whether there is a drop-in, and the programs that systemd has loaded and runs.
_COMMANDS = """
import json, os, sys
from pathlib import Path
from services.cli.systemd import control
from services.cli.takeover.node import SystemdNode, Target, running_kubelet
from services.cli.takeover.operation import Operation
from services.cli.takeover.plan import Intent, Step, intent_after
from services.cli.takeover.record import Record, RecordFile
from services.cli.takeover.unit import UNIT, loaded_kubelet

directory, lacks, seconds, *commands = sys.argv[1:]
program = directory + "/bulkhead/kubelet"
target = Target(program=program, config=None, run_dir=directory, needs_api_server=False)

class Node(SystemdNode):
    def _lacks_under_bulkhead(self, unit, record):
        return [lacks] if lacks else []

def run(intent):
    file = RecordFile(Path(directory) / "state")
    unit, record = control.read_unit(UNIT), file.load()
    first = Record(intent=intent, step=Step.WRITE, words=(unit.program, *unit.words))
    node = Node(target, file)
    operation = Operation(node, record or first, float(seconds), lambda line: print(line, file=sys.stderr))
    match intent_after(record.intent if record and not record.done else None, intent):
        case Intent.TAKEOVER:
            outcome = operation.take_over()
        case Intent.ROLL_BACK:
            outcome = operation.roll_back(record.reason)
        case _:
            outcome = operation.give_back()
    print(outcome.line, file=sys.stderr)
    os._exit(outcome.code)

answer = []
for command in commands:
    name, _, point = command.partition(" ")
    (Path(directory) / "crash").write_text(point)
    if not (child := os.fork()):
        run(Intent(name))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    unit = control.read_unit(UNIT)
    answer.append([code, target.drop_in.exists(), loaded_kubelet(unit, program), running_kubelet(unit, program)])
print(json.dumps(answer))
"""
OWN, OURS = [False, "own", "own"], [True, "bulkhead", "bulkhead"]


@pytest.fixture(scope="module")
def booted() -> Iterator[SystemdMachine]:
    with tempfile.TemporaryDirectory(prefix="bkd", dir="/tmp") as directory, SystemdMachine(Path(directory)) as machine:
        machine.run("bash", "-c", _OF_THE_MACHINE.format(directory=directory))
        for name in ("own", "bulkhead"):
            (machine.directory / name).mkdir()
            (machine.directory / name / "kubelet").write_text(_PROGRAM)
            (machine.directory / name / "kubelet").chmod(0o755)
        yield machine


@pytest.fixture
def machine(booted: SystemdMachine, request: pytest.FixtureRequest) -> Iterator[SystemdMachine]:
    """The machine with a kubelet whose unit and drop-in are in the directory of a package, or in that of the test."""
    directory = booted.directory / getattr(request, "param", OF_PACKAGE).parts[1].replace("usr", "lib")
    (directory / "kubelet.service.d").mkdir()
    (directory / "kubelet.service").write_text(_UNIT.format(directory=booted.directory))
    drop_in = directory / "kubelet.service.d/10-kubeadm.conf"
    drop_in.write_text(_DROP_IN.format(directory=booted.directory))
    booted.run("systemctl", "daemon-reload")
    booted.run("systemctl", "start", "kubelet.service")
    yield booted
    booted.run("systemctl", "stop", "kubelet.service")
    drop_in.unlink()
    drop_in.parent.rmdir()  # nothing else is in it
    (directory / "kubelet.service").unlink()


def run(machine: SystemdMachine, *commands: str, lacks: str = "") -> list[list[Any]]:
    """What each command ends with. `lacks`: why the node is not ready under Bulkhead."""
    seconds = "1" if lacks else f"{WAIT_SECONDS:g}"  # that a kubelet has to become ready
    inside = machine.inside(sys.executable, "-c", _COMMANDS, str(machine.directory), lacks, seconds, *commands)
    environment = {"PATH": "/usr/bin:/bin", "CRASH_AT": f"@{machine.directory}/crash", "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(inside, capture_output=True, text=True, check=False, cwd=CHECKOUT, env=environment)
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("machine", [OF_PACKAGE, OF_OPERATOR], indirect=True)  # kubeadm since 1.29, and before
def test_a_takeover_and_a_give_back_load_what_they_have_changed(machine: SystemdMachine) -> None:
    assert run(machine, "takeover", "takeover", "give-back", "give-back") == [
        [0, *OURS], [0, *OURS], [0, *OWN], [0, *OWN],
    ]  # fmt: skip


@pytest.mark.parametrize("machine", [OF_PACKAGE, OF_OPERATOR], indirect=True)
def test_a_takeover_that_fails_leaves_the_units_own_kubelet(machine: SystemdMachine) -> None:
    assert run(machine, "takeover", lacks="the node is not Ready") == [[3, *OWN]]


@pytest.mark.parametrize("second", ["takeover", pytest.param("give-back", marks=pytest.mark.night)])
def test_a_takeover_killed_at_any_step_is_continued_or_undone(machine: SystemdMachine, second: str) -> None:
    end = OURS if second == "takeover" else OWN
    for point, found in killed(machine, points("WRITE", "RELOAD", "RESTART"), "takeover {}", second, "give-back"):
        assert (found[0][0], found[1:]) == (KILLED, [[0, *end], [0, *OWN]]), point


@pytest.mark.parametrize("second", ["give-back", pytest.param("takeover", marks=pytest.mark.night)])
def test_a_give_back_killed_at_any_step_is_continued_or_undone(machine: SystemdMachine, second: str) -> None:
    end, steps = OURS if second == "takeover" else OWN, points("REMOVE", "RELOAD", "RESTART")
    for point, found in killed(machine, steps, "takeover", "give-back {}", second, "give-back"):
        assert (found[0], found[1][0], found[2:]) == ([0, *OURS], KILLED, [[0, *end], [0, *OWN]]), point


@pytest.mark.parametrize("second", ["takeover", pytest.param("give-back", marks=pytest.mark.night)])
def test_a_roll_back_killed_at_any_step_is_completed_by_either_command(machine: SystemdMachine, second: str) -> None:
    steps = ["takeover.saved.REMOVE", "takeover.acted.REMOVE"]  # the takeover itself has the others as well
    for point, found in killed(machine, steps, "takeover {}", second, lacks="the node is not Ready"):
        assert (found[0][0], found[1][1:]) == (KILLED, OWN), point
        assert found[1][0] in ((1, 3) if second == "takeover" else (0,)), point


def points(*steps: str) -> list[str]:
    return [f"takeover.{moment}.{step}" for step in steps for moment in ("saved", "acted")]


def killed(
    machine: SystemdMachine, points: Sequence[str], *commands: str, lacks: str = ""
) -> Iterator[tuple[str, list[list[Any]]]]:
    """Each point, and what the commands end with of which one is killed there: that with the braces."""
    found = run(machine, *(command.format(point) for point in points for command in commands), lacks=lacks)
    yield from zip(points, (found[at : at + len(commands)] for at in range(0, len(found), len(commands))), strict=True)
