"""The Debian package in a machine of its own with a real systemd, emulated: from `apt install` without a network to
`apt purge`, with a restart, a reboot, a power cut and an upgrade in between. The tests are one plan, in this order."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import package_steps as steps
from tests.lacking import lack
from tests.vm import image
from tests.vm.debian import EmulatedDebian
from tests.vm.package_disks import FIRST, LATER, recipe
from tests.vm.qemu import KVM, TCG, accelerator
from tools.prerequisites import missing_packages

pytestmark = [pytest.mark.root, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def machine(request: pytest.FixtureRequest) -> Iterator[EmulatedDebian]:
    """The machine; its consoles stay in the folder that is printed where a test fails."""
    if missing := missing_packages("vm"):
        lack(f"missing on this machine: apt-get install {' '.join(missing)}")
    directory, failures = Path(tempfile.mkdtemp(prefix="bulkhead-vm-package-")), request.session.testsfailed
    print(f"# consoles of the machine: {directory}")
    base = image.base(recipe())
    chosen = accelerator(base)
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(EmulatedDebian(base, chosen, directory / "first"))
        except AssertionError:
            if chosen != KVM:
                raise
            print("# no answer came under KVM: trying again, emulated")
            machine = stack.enter_context(EmulatedDebian(base, TCG, directory / "emulated"))
        yield machine
    if request.session.testsfailed == failures:
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def failed() -> list[str]:
    """The names of the tests of this plan that have failed."""
    return []


@pytest.fixture(autouse=True)
def in_order(request: pytest.FixtureRequest, machine: EmulatedDebian, failed: list[str]) -> Iterator[None]:
    """A test after one that failed would only wait in vain; the first failure prints the journal."""
    if failed:
        pytest.fail(f"not tried: {failed[0]} failed", pytrace=False)
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before:
        failed.append(request.node.name)
        print(machine.last_lines())


def test_apt_installs_the_package_without_a_network(machine: EmulatedDebian) -> None:
    assert machine.must("cat", "/proc/1/comm", "/sys/fs/cgroup/cgroup.subtree_control").startswith("systemd\n")
    steps.install(machine, FIRST)


def test_the_node_is_ready_after_one_command(machine: EmulatedDebian) -> None:
    steps.start(machine)


def test_a_restart_and_a_reload_leave_the_pod(machine: EmulatedDebian) -> None:
    steps.restart(machine)
    steps.reload(machine)


def test_a_reboot_restarts_the_agent_and_its_pod(machine: EmulatedDebian) -> None:
    steps.boot(machine, machine.reboot)


def test_a_power_cut_restarts_the_agent_and_its_pod(machine: EmulatedDebian) -> None:
    steps.boot(machine, machine.cut)


def test_an_upgrade_leaves_the_pod(machine: EmulatedDebian) -> None:
    steps.upgrade(machine, LATER)


def test_a_removal_leaves_the_pod_and_a_later_installation_continues_with_it(machine: EmulatedDebian) -> None:
    tasks = steps.remove(machine)
    steps.install_again(machine, FIRST, tasks)


def test_a_purge_removes_the_state_when_it_is_answered_so(machine: EmulatedDebian) -> None:
    steps.end_the_pod(machine)
    machine.must("sh", "-c", f"echo {steps.ANSWER} | debconf-set-selections")
    machine.apt("purge", "bulkhead")
    steps.nothing_is_left(machine)
