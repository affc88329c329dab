"""Pods with a user namespace of their own, in a machine whose runtime supports them: containerd 2 with runc 1.2 or
later, which no released Debian has."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.checkout_inside import lay_out, run_tests, shown_directories
from tests.machine.machine import Machine
from tests.machine.root import cached_root
from tests.process.supervised import eventually

# The runc of sid needs a newer C library than that of Debian 12.
PARTS = {"MACHINE_SUITE": "trixie", "MACHINE_CONTAINERD": "sid", "MACHINE_RUNC": "sid"}
_MISSING = any(os.environ.get(name) != value for name, value in PARTS.items())

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(_MISSING, reason="needs " + " ".join(f"{name}={value}" for name, value in PARTS.items())),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    directory = tmp_path_factory.mktemp("users") / "machine"
    with Machine(directory, root=cached_root("install", "uidmap"), shown=shown_directories()) as machine:
        yield machine


def test_a_pod_of_the_installed_package_has_users_of_its_own(machine: Machine, package: Path) -> None:
    """The files of its containers are below /run/bulkhead, which is not open to other users."""
    shutil.copy(package, machine.shared / "bulkhead.deb")
    machine.must("dpkg", "--install", "/host/bulkhead.deb")
    machine.must("systemctl", "start", "bulkhead")
    machine.must("bulkhead", "status", f"--wait-ready={machine.within:g}")
    machine.import_images()
    machine.add_pod("apart", hostUsers=False)
    machine.add_pod("together")
    running = {"apart-machine": "Running", "together-machine": "Running"}
    try:
        eventually(lambda: machine.states() == running, "both pods run", machine.within)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{machine.call('bulkhead', 'explain', 'apart').stdout[-4000:]}") from error
    users = r"ps -e -o uid=,args= | sed -n 's/^ *\([0-9]*\) sleep 100000$/\1/p'"
    assert sorted(map(int, machine.must("sh", "-c", users).split())) == [0, 65536]
    machine.remove_pod("apart")
    machine.remove_pod("together")
    eventually(lambda: not machine.states() and not machine.tasks(), "both pods have ended", machine.within)
    machine.must("systemctl", "stop", "bulkhead")


def test_pods_have_users_of_their_own(machine: Machine) -> None:
    lay_out(machine)
    run_tests(machine, "tests/machine/inside/user_namespaces.py", "systemd")
