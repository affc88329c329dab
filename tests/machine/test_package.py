"""The Debian package in a machine of its own: from `apt install` without a network to `apt purge`, with a restart, a
reboot and a power cut with ten pods, and an upgrade in between. The tests are one plan, in this order."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machine.machine import Machine
from tests.machine.root import machine_suite
from tests.process.supervised import eventually
from tests.support.machines import package_steps as steps
from tests.support.machines.installed_node import CONTAINERD
from tests.support.machines.release_build import relabelled
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

FIRST, LATER = "/host/bulkhead.deb", "/host/later.deb"
PODS = tuple(f"pod-{number}" for number in range(10))
# Debian's iptables speaks nf_tables, of which this kernel has no NAT.
LEGACY_IPTABLES = ("update-alternatives", "--set", "iptables", "/usr/sbin/iptables-legacy")


@pytest.fixture(scope="module")
def machine(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("package") / "machine") as machine:
        relabelled(package, "99", machine.shared / "later.deb")
        shutil.copy(package, machine.shared / "bulkhead.deb")
        yield machine


@pytest.fixture(scope="module")
def failed() -> list[str]:
    """The names of the tests of this plan that have failed."""
    return []


@pytest.fixture(autouse=True)
def in_order(request: pytest.FixtureRequest, machine: Machine, failed: list[str]) -> Iterator[None]:
    """A test after one that failed would only wait in vain; the first failure prints the journal."""
    if failed:
        pytest.fail(f"not tried: {failed[0]} failed", pytrace=False)
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before:
        failed.append(request.node.name)
        print(machine.last_lines())


def test_apt_installs_the_package_without_a_network(machine: Machine) -> None:
    steps.install(machine, FIRST)
    machine.must(*LEGACY_IPTABLES)


def test_the_node_is_ready_after_one_command(machine: Machine) -> None:
    steps.start(machine)


def test_a_restart_and_a_reload_leave_the_pod(machine: Machine) -> None:
    steps.restart(machine)
    steps.reload(machine)


def test_an_upgrade_leaves_the_pod(machine: Machine) -> None:
    steps.upgrade(machine, LATER)


def test_a_removal_leaves_the_pod_and_a_later_installation_continues_with_it(machine: Machine) -> None:
    tasks = steps.remove(machine)
    steps.install_again(machine, FIRST, tasks)


def test_a_reboot_restarts_the_agent_and_ten_pods(machine: Machine) -> None:
    for name in PODS:
        machine.add_pod(name)
    _wait_until_they_run(machine)
    _boot_with_ten_pods(machine, machine.reboot)


def test_a_power_cut_restarts_the_agent_and_ten_pods(machine: Machine) -> None:
    _boot_with_ten_pods(machine, machine.cut)


def test_a_soft_reboot_restarts_the_agent_and_ten_pods(machine: Machine) -> None:
    if machine_suite() == "bookworm":
        pytest.skip("needs systemd 254 or later: MACHINE_SUITE=trixie")
    _boot_with_ten_pods(machine, machine.soft_reboot)


def test_a_purge_removes_the_state_when_it_is_answered_so(machine: Machine) -> None:
    for name in PODS:
        machine.remove_pod(name)
    eventually(
        lambda: len(machine.states()) == 1 and len(machine.tasks()) == 2, "ten pods have ended", 10 * WAIT_SECONDS
    )
    steps.end_the_pod(machine)
    steps.purge(machine)


def _boot_with_ten_pods(machine: Machine, change: Callable[[], None]) -> None:
    """A boot starts the agent, which starts each pod once more."""
    before, tasks = _by_name(machine), machine.tasks()
    assert len(tasks) == 2 * (len(PODS) + 1), tasks
    change()
    eventually(lambda: machine.show("bulkhead", "ActiveState") == {"ActiveState": "active"}, "active", machine.within)
    assert machine.show("bulkhead", "NRestarts") == {"NRestarts": "0"}, machine.last_lines()
    _wait_until_they_run(machine)
    assert _by_name(machine) == {name: (uid, restarts + 1) for name, (uid, restarts) in before.items()}
    assert not {task.split()[0] for task in tasks} & {task.split()[0] for task in machine.tasks()}


def _by_name(machine: Machine) -> dict[str, tuple[str, int]]:
    return {pod["name"]: (pod["uid"], pod["restarts"]) for pod in machine.pods()}


def _wait_until_they_run(machine: Machine) -> None:
    wanted = 2 * (len(PODS) + 1)

    def run() -> bool:
        # A look takes a second of the machine's one processor, which the pods need.
        machine.must("sleep", "3")
        listed = machine.call("ctr", "--address", CONTAINERD, "--namespace", "k8s.io", "tasks", "ls", "--quiet")
        if len(listed.stdout.split()) != wanted:
            return False
        return list(machine.states().values()) == ["Running"] * (len(PODS) + 1) and len(machine.tasks()) == wanted

    eventually(run, "eleven pods run", 10 * WAIT_SECONDS)
