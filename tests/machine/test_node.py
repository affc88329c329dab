"""A node alone in a machine of its own: what the unified cgroup hierarchy and systemd show of its pods under both
cgroup drivers, kills of the agent and of containerd, reboots and a power cut. Each test is one line of
tests/machine/inside/plan.py, in that order."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machine.inside.plan import PHASES, Phase, expected
from tests.machine.machine import Machine
from tests.machine.root import Root
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

_COPIED = ("tests", "tools")  # the package has the rest
_MAX_PHASE_SECONDS = 15 * WAIT_SECONDS


class Plan:
    """The phases of the plan on one machine: the first check of a phase takes the machine through the whole phase."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._phase: Phase | None = None
        self._broken = ""  # why no further phase is tried
        self._reasons: dict[tuple[str, str], str] = {}
        self.seconds: dict[tuple[str, str], float] = {}  # of the checks that were tried

    def check(self, phase_name: str, check: str) -> None:
        """AssertionError with the reason where the check failed, or what comes before it."""
        [phase] = (phase for phase in PHASES if phase.name == phase_name)
        if self._phase is not phase and not self._broken:
            try:
                self._go_through(phase)
            except AssertionError as error:
                self._broken = f"phase {phase.name!r}: {error}"
        reason = self._reasons.get((phase_name, check), f"not tried: {self._broken}")
        assert not reason, reason

    def _go_through(self, phase: Phase) -> None:
        before, self._phase = self._phase, phase
        if before is not None and before.leave in ("reboot", "cut"):
            self._inside("leave", before.name)
            (self._machine.reboot if before.leave == "reboot" else self._machine.cut)()
        done = self._inside("run", phase.name)
        for result in map(json.loads, done.stdout.splitlines()):
            self._reasons[phase.name, result["check"]] = result["reason"]
            self.seconds[phase.name, result["check"]] = result["seconds"]
            verdict = "not ok" if result["reason"] else "ok"
            print(f"{verdict} {phase.name}: {result['check']} ({result['seconds']} s)")
        if self._reasons[phase.name, expected(phase)[0][1]]:
            raise AssertionError("its first check failed")

    def _inside(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = ("/opt/bulkhead/bin/python", "-P", "-m", "tests.machine.inside", *arguments)
        done = self._machine.run(*command, seconds=_MAX_PHASE_SECONDS, PYTHONPATH="/host")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        return done


@pytest.fixture(scope="module")
def plan(installed_root: Root, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plan]:
    with Machine(tmp_path_factory.mktemp("node") / "machine", root=installed_root) as machine:
        shutil.copy(package, machine.shared / "bulkhead.deb")
        for name in _COPIED:
            shutil.copytree(CHECKOUT / name, machine.shared / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy("/bin/busybox", machine.shared)
        machine.must("cp", "/host/busybox", "/bin/busybox")  # what the images of the pods are made of
        machine.must("dpkg", "--install", "/host/bulkhead.deb")
        yield Plan(machine)


@pytest.mark.parametrize(("phase", "check"), expected())
def test_in_the_machine(plan: Plan, phase: str, check: str, record_property: Callable[[str, object], None]) -> None:
    try:
        plan.check(phase, check)
    finally:  # the seconds of the test of a first check are those of the whole phase
        record_property("seconds", plan.seconds.get((phase, check), 0.0))
