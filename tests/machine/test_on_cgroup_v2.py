"""Tests of pods in a machine of its own, with cgroup v2 alone and systemd as process 1: those that `make test` runs on
the cgroups of this machine run in there as well, and those of memory, swap and process ids only there."""

from collections.abc import Callable, Iterator

import pytest

from tests.machine.checkout_inside import lay_out, run_tests, shown_directories
from tests.machine.machine import Machine
from tests.machine.root import Root

pytestmark = [pytest.mark.root, pytest.mark.timeout(1800)]

# A file, and the cgroup driver for tests that have a choice.
RUNS = (
    ("tests/machine/inside/limits.py", "systemd"),
    pytest.param("tests/e2e/test_resize.py", "systemd", marks=pytest.mark.night),
    pytest.param("tests/machine/inside/limits.py", "cgroupfs", marks=pytest.mark.night),
    pytest.param("tests/e2e/test_resize.py", "cgroupfs", marks=pytest.mark.night),
    pytest.param("tests/e2e/systemd_pods.py", "systemd", marks=pytest.mark.night),
    pytest.param("tests/e2e/test_node_allocatable.py", "cgroupfs", marks=pytest.mark.night),
    pytest.param("tests/e2e/behaviour/test_cgroups.py", "cgroupfs", marks=pytest.mark.night),
    pytest.param("tests/e2e/test_disk_pressure.py", "systemd", marks=pytest.mark.night),
    pytest.param("tests/e2e/test_disk_pressure.py", "cgroupfs", marks=pytest.mark.night),
)


@pytest.fixture(scope="module")
def machine(installed_root: Root, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    directory = tmp_path_factory.mktemp("v2") / "machine"
    with Machine(directory, root=installed_root, shown=shown_directories()) as machine:
        lay_out(machine)
        yield machine


@pytest.mark.parametrize(("file", "driver"), RUNS)
def test_these_tests_pass_on_cgroup_v2_alone(
    machine: Machine, file: str, driver: str, record_property: Callable[[str, object], None]
) -> None:
    for test, seconds in run_tests(machine, file, driver):
        record_property(f"seconds of {test}", seconds)
