"""The Debian package on a bare Debian, booted in namespaces: apt finds what it depends on, one command makes the node
ready, a reboot restarts its pod, a removal leaves the pod, a purge asks and then removes the state."""

import shutil
import time
from collections.abc import Iterator

import pytest

from shared.model.objects import Object
from tests.debian_machine import DebianMachine, make_root
from tests.lacking import require_command
from tests.process.supervised import eventually
from tests.release_build import build_release
from tests.vm.image import suite

pytestmark = [pytest.mark.root, pytest.mark.night, pytest.mark.timeout(1800)]

PACKAGE = "/root/bulkhead.deb"
QUESTION, TITLE = "[yes/no]", "Remove the state of the Bulkhead node agent?"
PLACES = ("/var/lib/bulkhead", "/var/log/bulkhead", "/run/bulkhead", "/etc/bulkhead", "/opt/bulkhead")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianMachine]:
    require_command("mmdebstrap")
    directory = tmp_path_factory.mktemp("bare")
    package = build_release(directory / "release")
    make_root(directory / "root", suite())
    shutil.copy(package, f"{directory}/root{PACKAGE}")
    with DebianMachine(directory) as machine:
        yield machine
    shutil.rmtree(machine.root)


def status(machine: DebianMachine) -> Object:
    """The one pod as the node shows it: uid, restarts and state."""
    [row] = machine.json("bulkhead", "pods", "-o", "json")
    found: Object = row
    return found


def runs(machine: DebianMachine) -> bool:
    return set(machine.states().values()) == {"Running"} and len(machine.tasks()) == 2


def test_apt_installs_the_package_with_what_it_needs(machine: DebianMachine) -> None:
    assert machine.call("python3", "--version").returncode != 0, "a bare Debian has no Python"
    machine.apt("update")
    began = time.monotonic()
    output = machine.apt("install", PACKAGE)
    print(f"installed in {time.monotonic() - began:.1f} s")
    assert "systemctl enable --now bulkhead" in output
    for program in ("/usr/bin/containerd", "/usr/sbin/runc", "/usr/lib/cni/bridge", "/usr/sbin/iptables"):
        assert machine.path(program).exists(), program
    assert machine.call("systemctl", "is-active", "bulkhead").stdout.strip() == "inactive"


def test_the_node_is_ready_after_one_command(machine: DebianMachine) -> None:
    began = time.monotonic()
    machine.must("systemctl", "enable", "--now", "bulkhead")
    machine.must("bulkhead", "status", "--wait-ready=60")
    print(f"ready {time.monotonic() - began:.1f} s after `systemctl enable --now bulkhead`")
    machine.import_images()
    machine.add_pod("pod")
    eventually(lambda: runs(machine), "the pod runs", 120)


def test_a_reboot_restarts_the_agent_and_its_pod(machine: DebianMachine) -> None:
    before, tasks = status(machine), machine.tasks()
    began = time.monotonic()
    machine.reboot()
    print(f"systemd answers {time.monotonic() - began:.1f} s after `systemctl reboot`")
    eventually(lambda: machine.show("bulkhead", "ActiveState")["ActiveState"] == "active", "the unit is active", 120)
    machine.must("bulkhead", "status", "--wait-ready=60")
    eventually(lambda: runs(machine), "the pod runs", 120)
    print(f"the pod runs {time.monotonic() - began:.1f} s after `systemctl reboot`")
    after = status(machine)
    assert (after["uid"], after["restarts"]) == (before["uid"], before["restarts"] + 1)
    assert not {line.split()[0] for line in tasks} & {line.split()[0] for line in machine.tasks()}


def test_a_removal_leaves_the_pod_and_a_purge_asks(machine: DebianMachine) -> None:
    pids = {line.split()[1] for line in machine.tasks()}
    assert "systemctl enable --now kubelet" in machine.apt("remove", "bulkhead")
    assert machine.call("systemctl", "is-active", "bulkhead").stdout.strip() == "inactive"
    assert pids <= machine.processes() and not machine.path("/opt/bulkhead").exists()
    assert TITLE in machine.answered(QUESTION, "no", "apt-get", "--yes", "purge", "bulkhead")
    assert machine.path("/var/lib/bulkhead/kubelet/pods").exists()
    assert pids <= machine.processes() and not machine.path("/etc/bulkhead/kubelet.yaml").exists()


def test_a_purge_removes_the_state_when_it_is_answered_so(machine: DebianMachine) -> None:
    before = machine.processes()
    machine.apt("install", PACKAGE)
    machine.must("systemctl", "enable", "--now", "bulkhead")
    eventually(lambda: runs(machine), "the pod runs")
    assert {line.split()[1] for line in machine.tasks()} <= before, "a later installation continues with the pod"
    machine.path("/etc/bulkhead/manifests/pod.json").unlink()
    eventually(lambda: not machine.states() and not machine.tasks(), "the pod has ended", 120)
    assert TITLE in machine.answered(QUESTION, "yes", "apt-get", "--yes", "purge", "bulkhead")
    for place in PLACES:
        assert not machine.path(place).exists(), place
