"""A real Linux of its own, emulated: cgroup v2 alone, systemd as process 1, reboots and power cuts (`make vm`).

The machine is booted once for all these tests; each is one line of what was checked inside (tests/vm/inside/plan.py).
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lacking import lack
from tests.vm import session
from tests.vm.inside.plan import expected
from tests.vm.session import Outcome
from tools.prerequisites import missing_packages

pytestmark = [pytest.mark.root, pytest.mark.timeout(2 * 3600)]


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    """What the machine reported; its consoles stay in the folder that is printed where something was not so."""
    if missing := missing_packages("vm"):
        lack(f"missing on this machine: apt-get install {' '.join(missing)}")
    directory = Path(tempfile.mkdtemp(prefix="bulkhead-vm-"))
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # an hour without a word would look like a hang
        print()
        found = session.run(directory)
        if found.trouble or any(found.checks.values()):
            print(f"# consoles of the machine: {directory}")
        else:
            shutil.rmtree(directory)
    yield found


def test_the_machine_came_to_the_end_of_its_plan(outcome: Outcome) -> None:
    assert not outcome.trouble, outcome.trouble
    assert outcome.ended


@pytest.mark.parametrize(("phase", "check"), expected())
def test_in_the_machine(outcome: Outcome, phase: str, check: str) -> None:
    assert (phase, check) in outcome.checks, "it was not reported"
    assert not outcome.checks[phase, check], outcome.checks[phase, check]
