"""A node alone in a machine of its own: what the unified cgroup hierarchy and systemd show of its pods under the
driver systemd, kills of the agent and of containerd, a reboot and a power cut. Each test is one line of
tests/vm/inside/plan.py, in that order."""

import shutil
from collections.abc import Iterator

import pytest

from tests.machine.machine import Machine
from tests.machine.root import cached_root
from tests.release_build import build_release
from tests.vm.inside.plan import PHASES, Phase, expected, sentence
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

_COPIED = ("tests", "tools")  # the package has the rest
# The driver cgroupfs is checked by `make vm`, and so is what becomes of the container that is killed for its memory: in
# these machines containerd 1.6 was seen to report such an end as an error.
_CHECKS = [
    (phase, check)
    for phase, check in expected()
    if phase.startswith("systemd") and "oom killed" not in check and "stays failed" not in check
]


class Plan:
    """The phases of tests/vm/inside/plan.py on one machine: each check first brings the machine into its phase."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._phase: Phase | None = None
        self._broken = ""  # why no further check is tried

    def check(self, phase_name: str, check: str) -> None:
        """Do what comes before the check, then the check; AssertionError with the reason where it fails."""
        [phase] = (phase for phase in PHASES if phase.name == phase_name)
        if self._broken:
            pytest.fail(f"not tried: {self._broken}", pytrace=False)
        try:
            if phase is not self._phase:
                self._enter(phase)
            self._inside("check", phase.name, check)
        except AssertionError:
            if check == sentence(phase.checks[0]):
                self._broken = f"{check!r} failed in phase {phase.name!r}"
            raise

    def _enter(self, phase: Phase) -> None:
        before, self._phase = self._phase, phase
        if before is not None and before.leave in ("reboot", "cut"):
            self._inside("leave", before.name)
            (self._machine.reboot if before.leave == "reboot" else self._machine.cut)()
        self._inside("prepare", phase.name)

    def _inside(self, *arguments: str) -> None:
        done = self._machine.call(
            "/opt/bulkhead/bin/python", "-P", "-m", "tests.machine.plan_step", *arguments, PYTHONPATH="/host"
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plan]:
    directory = tmp_path_factory.mktemp("node")
    package = build_release(directory / "release")
    with Machine(directory / "machine", root=cached_root("install")) as machine:
        package.rename(machine.shared / "bulkhead.deb")
        for name in _COPIED:
            shutil.copytree(CHECKOUT / name, machine.shared / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy("/bin/busybox", machine.shared)
        machine.must("cp", "/host/busybox", "/bin/busybox")  # what the images of the pods are made of
        machine.must("dpkg", "--install", "/host/bulkhead.deb")
        yield Plan(machine)


@pytest.mark.parametrize(("phase", "check"), _CHECKS)
def test_in_the_machine(plan: Plan, phase: str, check: str) -> None:
    plan.check(phase, check)
