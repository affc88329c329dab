"""Cgroups of the real kernel, made and removed by both drivers: v1, v2 as far as it has controllers, and systemd."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.podsync.adapters.cgroups import cgroup_files, cgroup_removal, process_placement
from services.podsync.adapters.cgroups.cgroup_drivers import CgroupfsDriver, SystemdDriver
from services.podsync.adapters.cgroups.systemd_units import SystemdError, SystemdUnits
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from services.podsync.core.cgroups.systemd_properties import unit_of
from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies
from shared.host.cgroup_name import cgroup_name
from shared.podspec.resources import weight
from tests.support.installed.lacking import lack
from tests.support.machines.systemd_machine import SystemdMachine
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.no_runtime, pytest.mark.timeout(300)]

VALUES = CgroupValues(cpu_shares=102, cpu_quota=1_500, cpu_period=100_000, memory_limit=64 << 20, pids_limit=77)
HOG = "held = bytearray(40 << 20); print('full', flush=True); input()"


def text(hierarchies: Hierarchies, controller: str, name: str, file: str) -> str:
    root = hierarchies.unified or hierarchies.by_controller[controller]
    return (root / name.strip("/") / file).read_text().strip()


@pytest.fixture
def ours() -> Iterator[tuple[Hierarchies, str]]:
    """The machine's hierarchies and the name of a cgroup of our own at their top."""
    hierarchies, name = cgroup_layout.find_hierarchies(), f"/bkt-cgroups-{os.getpid()}"
    yield hierarchies, name
    cgroup_removal.remove(hierarchies, name)


@pytest.fixture
def v1(ours: tuple[Hierarchies, str]) -> tuple[Hierarchies, str]:
    if ours[0].unified is not None:
        pytest.skip("this machine has cgroup v2 alone")
    return ours


@pytest.fixture
def v2() -> Iterator[Hierarchies]:
    """A v2 tree with the controllers that this machine's has, which on a hybrid host are few."""
    found = cgroup_layout.find_hierarchies()
    top = found.unified or found.beside
    if top is None or not cgroup_layout.controllers_of(top):
        pytest.skip("this machine has no cgroup v2 with controllers")
    assert top is not None
    control = top / "cgroup.subtree_control"
    before = set(control.read_text().split())
    tree = top / f"bkt-v2-{os.getpid()}"
    control.write_text(" ".join(f"+{controller}" for controller in cgroup_layout.controllers_of(top)))
    tree.mkdir()
    yield Hierarchies(unified=tree, by_controller={})
    cgroup_removal.remove(Hierarchies(unified=top, by_controller={}), tree.name)
    for controller in set(control.read_text().split()) - before:
        with suppress(OSError):  # another one makes use of it by now
            control.write_text(f"-{controller}")


async def test_version_1_takes_every_value_and_gives_it_back(v1: tuple[Hierarchies, str]) -> None:
    hierarchies, top = v1
    pod = f"{top}/kubepods/burstable/pod1"
    driver = CgroupfsDriver(hierarchies, ())
    await driver.ensure(pod, VALUES)
    assert cgroup_layout.exists(hierarchies, pod)
    wanted = {
        ("cpu", "cpu.shares"): "102",
        ("cpu", "cpu.cfs_quota_us"): "1500",
        ("cpu", "cpu.cfs_period_us"): "100000",
        ("memory", "memory.limit_in_bytes"): str(64 << 20),
        ("pids", "pids.max"): "77",
        ("cpuset", "cpuset.cpus"): hierarchies.by_controller["cpuset"].joinpath("cpuset.cpus").read_text().strip(),
    }
    assert {key: text(hierarchies, key[0], pod, key[1]) for key in wanted} == wanted
    await driver.write(pod, CgroupValues(cpu_shares=2))
    assert text(hierarchies, "cpu", pod, "cpu.shares") == "2"
    assert text(hierarchies, "pids", pod, "pids.max") == "77"
    await driver.destroy(pod)
    assert not any(place.exists() for place in hierarchies.places(pod))


async def test_a_cgroup_in_use_keeps_its_values(ours: tuple[Hierarchies, str]) -> None:
    hierarchies, top = ours
    driver = CgroupfsDriver(hierarchies, ())
    await driver.ensure(f"{top}/pod1", CgroupValues(cpu_shares=512))
    await driver.ensure(f"{top}/pod1", CgroupValues(cpu_shares=256))
    changed = text(hierarchies, "cpu", f"{top}/pod1", "cpu.shares" if not hierarchies.unified else "cpu.weight")
    cgroup_files.make(hierarchies, f"{top}/pod1/container")
    await driver.ensure(f"{top}/pod1", CgroupValues(cpu_shares=1024))
    kept = text(hierarchies, "cpu", f"{top}/pod1", "cpu.shares" if not hierarchies.unified else "cpu.weight")
    assert changed == kept in ("256", "10")


def test_shares_that_the_kernel_makes_others_are_an_error(v1: tuple[Hierarchies, str]) -> None:
    hierarchies, top = v1
    cgroup_files.make(hierarchies, top)
    with pytest.raises(OSError, match=r"cannot write '1' to .*/cpu\.shares: the kernel made it 2"):
        cgroup_files.write(hierarchies, top, CgroupValues(cpu_shares=1), ())


def test_a_memory_limit_below_the_usage_is_an_error_that_names_it(v1: tuple[Hierarchies, str]) -> None:
    hierarchies, top = v1
    cgroup_files.make(hierarchies, top)
    directory = hierarchies.by_controller["memory"] / top.strip("/")
    enter = f"import os; open('{directory}/cgroup.procs', 'w').write(str(os.getpid())); {HOG}"
    with subprocess.Popen(
        [sys.executable, "-c", enter], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as hog:
        assert hog.stdin is not None and hog.stdout is not None
        assert hog.stdout.readline() == "full\n"
        with pytest.raises(OSError, match=r"^unable to set memory limit to 8388608 \(current usage: \d+, peak us"):
            cgroup_files.write(hierarchies, top, CgroupValues(memory_limit=8 << 20), ())
        hog.communicate("\n")


def test_what_runs_in_it_and_below_it_is_killed(ours: tuple[Hierarchies, str]) -> None:
    hierarchies, top = ours
    pod = f"{top}/pod1"
    cgroup_files.make(hierarchies, f"{pod}/container/inner")
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
    first, last = hierarchies.roots()[0], hierarchies.roots()[-1]
    for place, sleeper in zip((first / pod[1:], first / pod[1:] / "container/inner", last / pod[1:] / "container"),
                              sleepers, strict=True):  # fmt: skip
        (place / "cgroup.procs").write_text(str(sleeper.pid))
    cgroup_removal.remove(hierarchies, pod)
    assert [sleeper.wait() for sleeper in sleepers] == [-signal.SIGKILL] * 3
    assert not any(place.exists() for place in hierarchies.places(pod))


async def test_version_2_passes_its_controllers_down_and_limits_huge_pages(v2: Hierarchies) -> None:
    assert v2.unified is not None
    sizes = tuple(p.name.split(".")[1] for p in v2.unified.glob("hugetlb.*.max") if p.name.count(".") == 2)
    if not sizes:
        lack("this machine's cgroup v2 does not have the controller hugetlb")
    driver = CgroupfsDriver(v2, sizes)
    pod = "/kubepods/burstable/pod1"
    await driver.ensure(pod, CgroupValues(hugepage_limits={sizes[0]: 4 << 20}))
    assert cgroup_layout.exists(v2, pod)
    assert cgroup_layout.controllers_of(v2.unified / pod[1:]) == cgroup_layout.controllers_of(v2.unified)
    assert int(text(v2, "", pod, f"hugetlb.{sizes[0]}.max")) in (4 << 20, 0)  # whole pages
    assert {text(v2, "", pod, f"hugetlb.{size}.max") for size in sizes[1:]} <= {"0"}
    await driver.write("/kubepods", CgroupValues(hugepage_limits=dict.fromkeys(sizes, 1 << 62)))
    await driver.destroy(pod)
    assert not (v2.unified / pod[1:]).exists()


async def test_on_version_2_a_cgroup_without_controllers_is_made_whole(v2: Hierarchies) -> None:
    """A mkdir of another process, or a kill between two steps."""
    assert v2.unified is not None
    (v2.unified / "kubepods/pod1").mkdir(parents=True)
    assert not cgroup_layout.exists(v2, "/kubepods/pod1")
    await CgroupfsDriver(v2, ()).ensure("/kubepods/pod1", CgroupValues())
    assert cgroup_layout.exists(v2, "/kubepods/pod1")


# systemd

POD = cgroup_name(("kubepods", "burstable", "pod1a-2b"), "systemd")
UNIT = unit_of(POD)


@pytest.fixture(scope="module")
def machine() -> Iterator[SystemdMachine]:
    with tempfile.TemporaryDirectory(prefix="bks", dir="/tmp") as directory, SystemdMachine(Path(directory)) as booted:
        yield booted


def driver_of(machine: SystemdMachine) -> SystemdDriver:
    return SystemdDriver(machine.hierarchies, (), SystemdUnits(machine.bus_address))


async def test_a_slice_is_started_changed_and_stopped(machine: SystemdMachine) -> None:
    driver = driver_of(machine)
    await driver.ensure(POD, VALUES)
    assert driver.units.version > 200
    v2 = machine.hierarchies.unified is not None
    shares, memory = ("CPUWeight", "MemoryMax") if v2 else ("CPUShares", "MemoryLimit")
    wanted = {
        "ActiveState": "active",
        shares: str(weight(102)) if v2 else "102",
        "CPUQuotaPerSecUSec": "20ms",
        memory: str(64 << 20),
        "TasksMax": "77",
        "Wants": "kubepods-burstable.slice",
        "MemoryAccounting": "yes",
    }
    assert machine.show(UNIT, *wanted) == wanted
    assert all(place.is_dir() for place in machine.hierarchies.places(POD) if place != machine.hierarchies.beside)
    quota = ("cpu.max", "1500 100000") if v2 else ("cpu.cfs_quota_us", "1500")
    assert text(machine.hierarchies, "cpu", POD, quota[0]) == quota[1]
    assert text(machine.hierarchies, "pids", POD, "pids.max") == "77"
    await driver.write(POD, CgroupValues(cpu_shares=2, memory_limit=32 << 20))
    changed = {shares: str(weight(2)) if v2 else "2", memory: str(32 << 20)}
    assert machine.show(UNIT, *changed) == changed
    file = "memory.max" if v2 else "memory.limit_in_bytes"
    assert text(machine.hierarchies, "memory", POD, file) == str(32 << 20)
    await driver.destroy(POD)
    assert machine.show(UNIT, "ActiveState") == {"ActiveState": "inactive"}
    assert not any(place.exists() for place in machine.hierarchies.places(POD))
    await driver.destroy(POD)
    await driver.units.close()


async def test_a_slice_that_runs_already_is_taken_over(machine: SystemdMachine) -> None:
    """An earlier process was killed between systemd's answer and the files."""
    driver = driver_of(machine)
    assert await driver.units.start(UNIT, [])
    assert not await driver.units.start(UNIT, [])
    await driver.ensure(POD, VALUES)
    assert machine.show(UNIT, "TasksMax") == {"TasksMax": "77"}
    assert text(machine.hierarchies, "pids", POD, "pids.max") == "77"
    await driver.destroy(POD)
    await driver.units.close()


async def test_what_is_left_in_a_slice_is_killed_at_once(machine: SystemdMachine) -> None:
    driver = driver_of(machine)
    await driver.ensure(POD, VALUES)
    sleeper = await asyncio.create_subprocess_exec("sh", "-c", "trap '' TERM; sleep 1000", start_new_session=True)
    root = machine.hierarchies.unified or machine.hierarchies.by_controller["pids"]
    (root / POD.strip("/") / "cgroup.procs").write_text(str(sleeper.pid))
    await driver.destroy(POD)
    assert await sleeper.wait() == -signal.SIGKILL
    await driver.units.close()


async def test_many_slices_at_once(machine: SystemdMachine) -> None:
    driver = driver_of(machine)
    names = [cgroup_name(("kubepods", f"pod{number}"), "systemd") for number in range(30)]
    await asyncio.gather(*(driver.ensure(name, CgroupValues(cpu_shares=10)) for name in names))
    assert all(cgroup_layout.exists(machine.hierarchies, name) for name in names)
    await asyncio.gather(*(driver.destroy(name) for name in names))
    assert not any(cgroup_layout.exists(machine.hierarchies, name) for name in names)
    await driver.units.close()


async def test_what_systemd_refuses_is_one_line(machine: SystemdMachine) -> None:
    units = SystemdUnits(machine.bus_address)
    with pytest.raises(SystemdError, match=r"^systemd: StartTransientUnit: Invalid unit name"):
        await units.start("nonsense", [])
    with pytest.raises(SystemdError, match=r"^systemd: SetUnitProperties: .*NoSuchThing"):
        await units.set_properties(UNIT, [("NoSuchThing", "b", True)])
    await units.close()


async def test_a_bus_that_goes_away_is_found_again(machine: SystemdMachine) -> None:
    driver = driver_of(machine)
    await driver.ensure(POD, VALUES)
    machine.run("systemctl", "kill", "--signal=KILL", "dbus.service")
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            await driver.write(POD, CgroupValues(cpu_shares=7))
            break
        except SystemdError as error:
            assert str(error).startswith(("systemd: ", "cannot reach systemd over D-Bus: ")), error
            assert time.monotonic() < deadline, error
            await asyncio.sleep(0.1)
    shown = {"CPUWeight": str(weight(7))} if machine.hierarchies.unified else {"CPUShares": "7"}
    assert machine.show(UNIT, *shown) == shown
    await driver.destroy(POD)
    await driver.units.close()


async def test_the_error_on_a_machine_without_a_bus_names_it(tmp_path: Path) -> None:
    units = SystemdUnits(f"unix:path={tmp_path}/missing")
    with pytest.raises(SystemdError, match=r"^cannot reach systemd over D-Bus: No such file or directory \(is dbus"):
        await units.start(UNIT, [])


def test_the_kernel_takes_processes_of_a_root_into_another_cgroup(ours: tuple[Hierarchies, str]) -> None:
    """A cgroup of ours plays the root, or every process of the machine would be moved."""
    machine, top = ours
    cgroup_files.make(machine, top)
    inner = {name: root / top.strip("/") for name, root in machine.by_controller.items()}
    unified = None if machine.unified is None else machine.unified / top.strip("/")
    trees = Hierarchies(unified=unified, by_controller=inner)
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
    pids = {sleeper.pid for sleeper in sleepers}
    try:
        for root in trees.roots():
            for pid in pids:
                (root / "cgroup.procs").write_text(str(pid))
        assert process_placement.place(trees, "/agent", sleepers[0].pid)
        assert process_placement.place_root_processes(trees, "/system") == 2
        for root in trees.roots():
            assert cgroup_layout.processes_in(root) == []
            assert cgroup_layout.processes_in(root / "agent") == [sleepers[0].pid]
            assert set(cgroup_layout.processes_in(root / "system")) == pids - {sleepers[0].pid}
        assert process_placement.place_root_processes(trees, "/system") == 0
        sleepers[1].kill()
        sleepers[1].wait()
        assert not process_placement.place(trees, "/agent", sleepers[1].pid)
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
