"""SIGKILL of volume at its steps, for each type of volume: the next process leaves the mounts of an undisturbed
run, loses no data and leaves nothing of a pod that is gone."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from services.volume.adapters.mounts import mount_table, unmount_all
from shared.host.mountinfo import below
from tests.e2e.kill_matrix import DRIVER, UID, Kind, Machine
from tests.fakes.csi_driver import STAGE
from tests.support.installed.lacking import require_command
from tests.support.runtime.loop_devices import devices_below, exclusive_loop_devices
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.no_runtime, pytest.mark.timeout(900)]

# More steps than any run has: each of them at night, each eighth otherwise.
STEPS = range(1, 1000, 1 if os.environ.get("NIGHT") else 8)
TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
KINDS = {
    "emptyDir": Kind("emptyDir", {"emptyDir": {}}),
    "emptyDir in memory": Kind("emptyDir in memory", {"emptyDir": {"medium": "Memory"}}),
    "hostPath": Kind("hostPath", {"hostPath": {"path": "{host}", "type": "Directory"}}, keeps=True),
    "configMap": Kind("configMap", {"configMap": {"name": "x", "defaultMode": 0o644}}),
    "projected token": Kind("projected token", {"projected": {"defaultMode": 0o644, "sources": [TOKEN]}}),
    "nfs": Kind("nfs", {"nfs": {"server": "storage", "path": "/export"}}, keeps=True),
    "csi": Kind("csi", {"csi": {"driver": DRIVER, "volumeHandle": "data"}}, persistent=True, keeps=True),
    "csi block": Kind(
        "csi block", {"csi": {"driver": DRIVER, "volumeHandle": "data"}}, persistent=True, block=True, keeps=True
    ),
    "local device": Kind("local device", {"local": {"path": "{device}"}}, persistent=True, keeps=True),
    "local block": Kind("local block", {"local": {"path": "{device}"}}, persistent=True, block=True, keeps=True),
}
FILES = ("configMap", "projected token")


@pytest.fixture
def directory(request: pytest.FixtureRequest) -> Iterator[Path]:
    has_device = KINDS[request.node.callspec.params["machine"]].has_device
    with (
        exclusive_loop_devices() if has_device else nullcontext(),
        tempfile.TemporaryDirectory(prefix="kill", dir="/tmp") as name,
    ):
        path = Path(name)
        yield path
        for device in reversed(devices_below(path)):
            subprocess.run(["losetup", "-d", device], check=False)
        for point in below(mount_table(), name):
            unmount_all(Path(point))


@pytest.fixture
def machine(directory: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    kind = KINDS[request.param]
    for program in ("losetup", "mkfs.ext4", "blkid"):
        require_command(program)
    host = directory / "host"
    host.mkdir()
    values = {"host": str(host), "device": ""}
    if kind.has_device:
        image = directory / "disk.img"
        image.touch()
        os.truncate(image, 8 << 20)
        made = subprocess.run(["losetup", "-f", "--show", image], check=False, capture_output=True, text=True)
        if made.returncode:
            pytest.skip("the kernel of this machine has no loop devices")
        values["device"] = made.stdout.strip()
    [(field, source)] = kind.source.items()
    filled = {key: value.format(**values) if isinstance(value, str) else value for key, value in source.items()}
    machine = Machine(directory, Kind(kind.name, {field: filled}, kind.persistent, kind.block, kind.keeps))
    if kind.name == "nfs":
        monkeypatch.setenv("PATH", f"{_programs(directory, host)}:{os.environ['PATH']}")
    driver = None
    if "csi" in kind.source:
        state = directory / "driver"
        (state / "volumes" / "data").mkdir(parents=True)
        if kind.block:
            (state / "volumes" / "data" / "device").symlink_to(values["device"])
        command = [sys.executable, "-m", "tests.fakes.csi_driver", machine.root, state, "--capability", STAGE]
        driver = subprocess.Popen(list(map(str, command)), cwd=Path(__file__).parents[2])
        deadline = time.monotonic() + WAIT_SECONDS
        while not Path(machine.endpoint(DRIVER)).exists():
            assert time.monotonic() < deadline, "the driver does not serve"
            time.sleep(0.05)
    try:
        yield machine
    finally:
        if driver is not None:
            driver.kill()
            driver.wait()


def _programs(directory: Path, export: Path) -> Path:
    """A program `mount` that binds a directory in place of an export: the kernel may have no NFS."""
    programs = directory / "bin"
    programs.mkdir()
    script = f'#!/bin/sh\nfor target; do :; done\nexec /bin/mount --bind {export} "$target"\n'
    (programs / "mount").write_text(script)
    (programs / "mount").chmod(0o755)
    return programs


def volume(machine: Machine) -> Path:
    """Where the pod finds the volume."""
    if machine.kind.name == "hostPath":
        return Path(machine.kind.source["hostPath"]["path"])
    folder = "volumeDevices" if machine.kind.block else "volumes"
    [found] = (machine.root / "pods" / UID / folder).glob("*/*")
    return found / "mount" if machine.kind.name == "csi" else found


def write(machine: Machine) -> None:
    """As a container of the pod does it."""
    if machine.kind.name in FILES:
        return
    if not machine.kind.block:
        (volume(machine) / "data").write_text("kept")
        return
    with volume(machine).open("r+b") as device:
        device.write(b"kept")
        device.flush()
        os.fsync(device.fileno())


def read(machine: Machine) -> str:
    if machine.kind.name in FILES:
        name, content = ("key", "content") if machine.kind.name == "configMap" else ("token", "jwt")
        assert (volume(machine) / name).read_text() == content
        return "kept"
    if not machine.kind.block:
        return (volume(machine) / "data").read_text()
    with volume(machine).open("rb") as device:
        return device.read(4).decode()


def is_gone(machine: Machine) -> None:
    """Nothing of the pod is left after a process that has no pod."""
    machine.process(wanted=False)
    assert (machine.mounts(), machine.left()) == ([], [])


@pytest.mark.parametrize("machine", KINDS, indirect=True)
def test_a_kill_at_each_step_of_a_mount(machine: Machine) -> None:
    machine.process(wanted=True)
    expected = machine.mounts()
    is_gone(machine)
    for step in STEPS:
        if not machine.process(wanted=True, kill_at=step):
            break
        machine.process(wanted=True)  # the pod is still there
        assert machine.mounts() == expected, step
        write(machine)
        assert read(machine) == "kept"
        is_gone(machine)
        if machine.process(wanted=True, kill_at=step):  # or it is gone when the next process starts
            is_gone(machine)
    assert step > 3
    print(f"{machine.kind.name}: killed before step {step} of a mount, at each of {STEPS.step}")


@pytest.mark.parametrize("machine", KINDS, indirect=True)
def test_a_kill_at_each_step_of_a_restart_keeps_what_the_pod_has_written(machine: Machine) -> None:
    machine.process(wanted=True)
    write(machine)
    expected = machine.mounts()
    for step in STEPS:
        killed = machine.process(wanted=True, kill_at=step)
        assert (machine.mounts(), read(machine)) == (expected, "kept"), step  # a running container uses it meanwhile
        if not killed:
            break
        machine.process(wanted=True)
        assert (machine.mounts(), read(machine)) == (expected, "kept"), step
    print(f"{machine.kind.name}: killed before step {step} of a restart, at each of {STEPS.step}")


@pytest.mark.parametrize("machine", KINDS, indirect=True)
def test_a_kill_at_each_step_of_an_unmount(machine: Machine) -> None:
    for step in STEPS:
        machine.process(wanted=True)
        expected = machine.mounts()
        write(machine)
        if not machine.process(wanted=False, kill_at=step):
            break
        is_gone(machine)
        machine.process(wanted=True)
        write(machine)
        machine.process(wanted=False, kill_at=step)
        machine.process(wanted=True)  # the pod, or one with its UID, is there again
        assert machine.mounts() == expected, step
        if machine.kind.keeps:
            assert read(machine) == "kept", step
        is_gone(machine)
    assert step > (1 if machine.kind.name == "hostPath" else 3)
    print(f"{machine.kind.name}: killed before step {step} of an unmount, at each of {STEPS.step}")
    machine.process(wanted=True)
    if machine.kind.keeps:
        assert read(machine) == "kept"
    is_gone(machine)
