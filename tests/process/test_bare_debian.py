"""The Debian package on a bare Debian, booted in namespaces: apt finds what it depends on, one command makes the node
ready, boots restart its pod, an upgrade and a removal leave it, a purge asks and then removes the state."""

import shutil
from collections.abc import Iterator

import pytest

from tests.machine.root import debian_suite
from tests.support.installed.lacking import require_command
from tests.support.machines import package_steps as steps
from tests.support.machines.debian_machine import DebianMachine, make_root
from tests.support.machines.release_build import build_release, relabelled

pytestmark = [pytest.mark.root, pytest.mark.night, pytest.mark.timeout(1800)]

PACKAGE, LATER = "/root/bulkhead.deb", "/root/later.deb"
QUESTION, TITLE = "[yes/no]", "Remove the state of the Bulkhead node agent?"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianMachine]:
    require_command("mmdebstrap")
    directory = tmp_path_factory.mktemp("bare")
    package = build_release(directory / "release")
    later = relabelled(package, "99", directory / "later.deb")
    make_root(directory / "root", debian_suite())
    shutil.copy(package, f"{directory}/root{PACKAGE}")
    shutil.move(later, f"{directory}/root{LATER}")
    with DebianMachine(directory) as machine:
        yield machine
    shutil.rmtree(machine.root)


def test_apt_installs_the_package_with_what_it_needs(machine: DebianMachine) -> None:
    machine.apt("update")
    steps.install(machine, PACKAGE)


def test_the_node_is_ready_after_one_command(machine: DebianMachine) -> None:
    steps.start(machine)


def test_a_restart_and_a_reload_leave_the_pod(machine: DebianMachine) -> None:
    steps.restart(machine)
    steps.reload(machine)


def test_a_reboot_restarts_the_agent_and_its_pod(machine: DebianMachine) -> None:
    steps.boot(machine, machine.reboot)


def test_a_power_cut_restarts_the_agent_and_its_pod(machine: DebianMachine) -> None:
    steps.boot(machine, machine.cut)


def test_an_upgrade_leaves_the_pod(machine: DebianMachine) -> None:
    steps.upgrade(machine, LATER)


def test_a_removal_leaves_the_pod_and_a_purge_asks(machine: DebianMachine) -> None:
    tasks = steps.remove(machine)
    assert TITLE in machine.answered(QUESTION, "no", "apt-get", "--yes", "purge", "bulkhead")
    steps.the_state_stays(machine)
    steps.install_again(machine, PACKAGE, tasks)


def test_a_purge_removes_the_state_when_it_is_answered_so(machine: DebianMachine) -> None:
    steps.end_the_pod(machine)
    assert TITLE in machine.answered(QUESTION, "yes", "apt-get", "--yes", "purge", "bulkhead")
    steps.nothing_is_left(machine)
