"""What an operator does with the Debian package, step by step, on a machine of the tests with one pod: each step raises
AssertionError where the machine, or the pod, is not as documented. The steps belong in one order, from `install`
to `remove`; a machine that has been purged may begin again."""

import time
from collections.abc import Callable

from tests.process.supervised import eventually
from tests.support.machines.installed_node import InstalledNode

POD = "pod"
ANSWER = "bulkhead bulkhead/remove-state boolean true"  # to the question of a purge, for debconf-set-selections
_PROGRAMS = ("/usr/bin/containerd", "/usr/sbin/runc", "/usr/lib/cni/bridge", "/usr/sbin/iptables")
_STATE = ("/var/lib/bulkhead", "/var/log/bulkhead", "/run/bulkhead")
_NETWORKS = "/var/lib/cni/results"  # what the CNI library records of each sandbox, which containerd does not change
_PLACES = (*_STATE, "/etc/bulkhead", "/opt/bulkhead")


def install(machine: InstalledNode, package: str) -> None:
    """Check that apt installs the package with what it needs, and starts nothing. `package`: a path in there."""
    assert machine.call("python3", "--version").returncode != 0, "a bare Debian has no Python"
    began = time.monotonic()
    output = machine.apt("install", package)
    print(f"installed in {time.monotonic() - began:.1f} s")
    assert "systemctl enable --now bulkhead" in output, output
    for program in _PROGRAMS:
        assert machine.exists(program), program
    unit = machine.show("bulkhead", "ActiveState", "UnitFileState")
    assert unit == {"ActiveState": "inactive", "UnitFileState": "disabled"}, unit
    verified = machine.call("systemd-analyze", "--man=no", "verify", "bulkhead.service")
    assert "bulkhead" not in verified.stdout + verified.stderr, verified


def start(machine: InstalledNode) -> None:
    """Check that one command makes the node ready, and that the pod then runs."""
    began = time.monotonic()
    machine.must("systemctl", "enable", "--now", "bulkhead")
    machine.must("bulkhead", "status", f"--wait-ready={machine.within:g}")
    print(f"ready {time.monotonic() - began:.1f} s after `systemctl enable --now bulkhead`")
    machine.import_images()
    machine.add_pod(POD)
    _wait_until_it_runs(machine)


def restart(machine: InstalledNode) -> None:
    """Check that `systemctl restart` brings another agent with the same containers."""
    before = machine.show("bulkhead", "MainPID")
    _leaves_the_containers(machine, lambda: machine.must("systemctl", "restart", "bulkhead"))
    assert machine.show("bulkhead", "MainPID") != before, before


def reload(machine: InstalledNode) -> None:
    """Check that `systemctl reload` keeps the main process and the containers, and replaces the services."""
    before, services = machine.show("bulkhead", "MainPID"), machine.services()
    assert len(services) == 7, services

    def replaced() -> bool:
        now = machine.services()
        return len(now) == 7 and not now & services

    def change() -> None:
        machine.must("systemctl", "reload", "bulkhead")
        eventually(replaced, "seven other services", machine.within)

    _leaves_the_containers(machine, change)
    assert machine.show("bulkhead", "MainPID") == before, before


def upgrade(machine: InstalledNode, package: str) -> None:
    """Check that apt installs a later version over a running agent: another agent with the same containers."""
    before = machine.version(), machine.show("bulkhead", "MainPID")
    _leaves_the_containers(machine, lambda: machine.apt("install", package))
    after = machine.version(), machine.show("bulkhead", "MainPID")
    assert before[0] != after[0] and before[1] != after[1], (before, after)


def remove(machine: InstalledNode) -> set[str]:
    """Check that a removal stops the agent and leaves the pod; return the tasks that still run."""
    tasks = machine.tasks()
    output = machine.apt("remove", "bulkhead")
    assert "systemctl enable --now kubelet" in output, output
    assert machine.call("systemctl", "is-active", "bulkhead").stdout.strip() == "inactive"
    assert not machine.exists("/opt/bulkhead") and machine.exists("/etc/bulkhead/kubelet.yaml")
    assert len(tasks) == 2 and machine.run_on(tasks), tasks
    return tasks


def install_again(machine: InstalledNode, package: str, tasks: set[str]) -> None:
    """Check that a later installation continues with the containers (`tasks`) that a removal has left."""
    machine.apt("install", package)
    machine.must("systemctl", "enable", "--now", "bulkhead")
    _wait_until_it_runs(machine)
    assert machine.tasks() == tasks, (machine.tasks(), tasks)


def end_the_pod(machine: InstalledNode) -> None:
    """Remove the manifest, and check that nothing of the pod runs afterwards."""
    machine.remove_pod(POD)
    eventually(lambda: not machine.states() and not machine.tasks(), "the pod has ended", machine.within)


def purge(machine: InstalledNode) -> None:
    """Check that a purge whose question is answered with yes leaves nothing in a machine whose pods have ended."""
    machine.must("sh", "-c", f"echo {ANSWER} | debconf-set-selections")
    machine.apt("purge", "bulkhead")
    for place in _PLACES:
        assert not machine.exists(place), place
    if not (rules := machine.must("iptables-save")):
        print("this kernel has no tables of iptables, and the pods have had no rules in them")
    # Debian's containerd is a package of its own.
    shown = {
        "cgroups": machine.must("find", "/sys/fs/cgroup", "-name", "kubepods*"),
        "units": machine.must(
            "sh", "-c", "systemctl list-units --all --no-legend | grep -E 'kubepods|bulkhead' || true"
        ),
        "interfaces": machine.must("sh", "-c", "ls /sys/class/net | grep -E 'bulkhead|veth' || true"),
        "namespaces": machine.must("sh", "-c", "ls /run/netns 2>/dev/null || true"),
        "records of networks": machine.must("sh", "-c", f"ls {_NETWORKS} | grep '^bulkhead0-' || true"),
        "rules": "\n".join(line for line in rules.splitlines() if "bulkhead0" in line),
        "mounts": machine.must("sh", "-c", "grep -E 'kubelet|bulkhead|containerd' /proc/mounts || true"),
        "processes": machine.must("sh", "-c", "ps -e -o args= | grep -E '[s]him|[b]ulkhead|[s]leep 100' || true"),
        "failed": machine.must("systemctl", "--failed", "--no-legend"),
    }
    assert {name: text for name, text in shown.items() if text} == {}


def _leaves_the_containers(machine: InstalledNode, change: Callable[[], object]) -> None:
    tasks, [before] = machine.tasks(), machine.pods()
    began = time.monotonic()
    change()
    machine.must("bulkhead", "status", f"--wait-ready={machine.within:g}")
    print(f"ready {time.monotonic() - began:.1f} s after the begin of the change")
    _wait_until_it_runs(machine)
    assert machine.tasks() == tasks, (machine.tasks(), tasks)
    [after] = machine.pods()
    assert (after["uid"], after["restarts"]) == (before["uid"], before["restarts"]), (before, after)


def _wait_until_it_runs(machine: InstalledNode) -> None:
    def runs() -> bool:
        return list(machine.states().values()) == ["Running"] and len(machine.tasks()) == 2

    try:
        eventually(runs, "the pod runs", machine.within)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{machine.call('bulkhead', 'explain', POD).stdout[-4000:]}") from error
