"""Devices of FlexVolume drivers that attach volumes: drivers in sh and Python that work, fail and hang."""

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import flex_drivers
from services.volume.adapters.flex_drivers import FlexDrivers
from services.volume.adapters.mounts import is_mount_point, mount_table
from services.volume.adapters.programs import leads_session_on
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.specs.expansion import ExpansionError
from services.volume.core.specs.flex_volume import FlexVolume
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.registry import persistent_volume_spec, volume_spec
from tests.fakes.flex_machine import FlexMachine, until

POD = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}
GIB = 1 << 30


def volume_of(**source: Any) -> FlexVolume:
    """As a PersistentVolume has it."""
    flex = {"driver": "acme/disk", **source}
    node = Node(labels={}, flex_attaches=True)
    persistent = PersistentVolume(name="pv-1", spec={"flexVolume": flex}, annotations={}, claim={})
    found = persistent_volume_spec(POD, persistent, node)
    assert isinstance(found, VolumeSpec) and isinstance(found.source, FlexVolume)
    assert (found.unique_name, found.attachable) == ("acme/disk/pv-1", True)
    return found.source


class Machine(FlexMachine):
    """A machine whose driver attaches volumes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "pv-1")
        (self.here / "attach").touch()

    def mount_device(self, device: str = "/dev/x", **source: Any) -> str:
        found = volume_of(**source)
        return self.plugin.mount_device(found.volume_name, found, SetUpInputs(device_path=device))

    def set_up(self, **source: Any) -> Path:
        inputs = SetUpInputs(device_path=str(self.device))
        return Path(self.plugin.set_up("u", "pv-1", volume_of(**source), inputs))

    def expand(self) -> None:
        inputs = SetUpInputs(capacity_before=GIB)
        self.plugin.expand("u", "pv-1", volume_of(options={"a": "b"}), 2 * GIB, inputs)

    def unmount_device(self) -> None:
        self.plugin.unmount_device("acme/disk/pv-1")

    def found(self) -> tuple[list[str], list[str]]:
        """The devices, and those of the pod's volumes."""
        devices = [device.volume_name for device in self.plugin.reconstruct_devices()]
        return devices, [volume.unique_name for volume in self.plugin.reconstruct("u")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    found.install("flex_driver.py")
    return found


def test_a_device_is_waited_for_mounted_and_unmounted_with_options_that_are_of_no_pod(machine: Machine) -> None:
    assert machine.mount_device(fsType="xfs", options={"share": "x"}) == str(machine.device)
    name, options = (machine.device / "device").read_text().split(" ", 1)
    assert (name, json.loads(options)) == (
        "/dev/x-1",
        {
            "kubernetes.io/fsType": "xfs",
            "kubernetes.io/readwrite": "rw",
            "kubernetes.io/pvOrVolumeName": "pv-1",
            "share": "x",
        },
    )
    path = machine.set_up()
    assert json.loads((path / "mounted").read_text())["kubernetes.io/pod.name"] == "web"
    machine.restart()
    assert machine.found() == (["acme/disk/pv-1"], ["acme/disk/pv-1"])
    machine.tear_down()
    assert machine.found() == (["acme/disk/pv-1"], [])
    machine.unmount_device()
    machine.unmount_device()
    assert machine.found() == ([], [])
    assert machine.calls() == [
        "waitforattach /dev/x",
        f"mountdevice {machine.device}",
        "init",
        f"mount {path}",
        f"unmount {path}",
        f"unmountdevice {machine.device}",
    ]


@pytest.mark.parametrize("command", ["waitforattach", "mountdevice"])
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("half", r"acme/disk was called to {command}, .* bytes that are no JSON object"),
        ("long", r"it printed more than 65536 bytes"),
        ("exit", r"ended with exit status 3: it printed the status Success"),
        ("fail", r"^{command} command failed, status: Failure, reason: cannot /"),
    ],
)
def test_a_call_for_a_device_that_fails_leaves_a_volume_that_is_mounted_at_the_next_try(
    machine: Machine, command: str, fault: str, text: str
) -> None:
    machine.fault(f"{command} {fault}")
    with pytest.raises(OSError, match=text.format(command=command)):
        machine.mount_device()
    machine.fault("")
    assert Path(machine.mount_device(), "device").is_file()
    machine.unmount_device()
    assert not machine.device.exists()


@pytest.mark.parametrize("command", ["waitforattach", "mountdevice"])
def test_a_driver_that_hangs_is_killed_and_what_it_began_is_awaited(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    machine.fault(f"{command} hang")
    run = FlexDrivers._run

    def run_shortly(drivers: FlexDrivers, words: list[str]) -> tuple[int, bytes]:
        with pytest.MonkeyPatch.context() as short:
            if words[1] == command:
                short.setattr(flex_drivers, "CALL_SECONDS", 0.1)
            return run(drivers, words)

    with monkeypatch.context() as shortly:
        shortly.setattr(FlexDrivers, "_run", run_shortly)
        with pytest.raises(TimeoutError, match=f"acme/disk was called to {command}, and has not ended"):
            machine.mount_device()
    machine.fault("")
    until(lambda: not leads_session_on(command, machine.here / "disk"))
    assert Path(machine.mount_device(), "device").is_file()


def test_a_device_whose_name_no_program_takes_is_an_error(machine: Machine) -> None:
    machine.fault("waitforattach device")
    with pytest.raises(OSError, match="it printed a device with characters that are not printable"):
        machine.mount_device()


def test_a_driver_expands_the_file_system_of_its_volume(machine: Machine) -> None:
    machine.mount_device()
    machine.set_up()
    machine.expand()
    options, *rest = json.loads((machine.here / "expanded").read_text())
    assert (json.loads(options)["a"], rest) == ("b", ["", str(machine.path), str(2 * GIB), str(GIB)])
    machine.fault("expandfs fail")
    with pytest.raises(OSError, match=r"^expandfs command failed, status: Failure"):
        machine.expand()
    machine.fault("expandfs hang")
    with pytest.MonkeyPatch.context() as short:
        short.setattr(flex_drivers, "CALL_SECONDS", 0.1)
        with pytest.raises(ExpansionError, match="has not ended within") as failed:
            machine.expand()
    assert failed.value.kind is None  # it may have had an effect


@pytest.mark.root
def test_the_agent_binds_and_unmounts_where_the_driver_mounts_devices_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.install("flex_driver.sh")
    try:
        machine.mount_device()
        path = machine.set_up(readOnly=True)
        (machine.device / "file").write_text("x")
        assert (path / "file").read_text() == "x"
        assert {"ro"} == next(mount.options for mount in mount_table() if mount.path == str(path)) & {"ro", "rw"}
        with pytest.raises(OSError, match=f'the device mount path "{machine.device}" is still mounted by other'):
            machine.unmount_device()
        machine.restart()
        machine.tear_down()
        (machine.here / "unmountdevice").touch()
        machine.unmount_device()
        assert (machine.path.exists(), machine.device.exists()) == (False, False)
        (machine.here / "mountdevice").touch()  # the agent mounts
        machine.mount_device(fsType="tmpfs")
        assert is_mount_point(machine.device)
        machine.unmount_device()
        machine.mount_device("")  # there is no device
        assert not is_mount_point(machine.device)
        with pytest.raises(OSError, match=f"mounts nothing for pods, and has mounted nothing at {machine.device}"):
            machine.set_up()
        machine.tear_down()
        machine.unmount_device()
        (machine.here / "mountdevice").unlink()
        (machine.here / "half").touch()
        with pytest.raises(OSError, match=r"acme/disk was called to mountdevice, .* no JSON object"):
            machine.mount_device()
        assert not machine.device.exists()
    finally:
        for path in (machine.path, machine.device):
            subprocess.run(("umount", "--quiet", str(path)), check=False)


def test_a_volume_whose_server_is_dead_is_found_again_without_a_look_at_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.mount_device()
    path, lstat = machine.set_up(), os.lstat

    def fail(looked_at: Any, *rest: Any, **more: Any) -> os.stat_result:
        if str(looked_at) in (str(machine.device), str(path)):
            raise OSError(errno.EIO, "as xfs has it on a disk that is gone")
        return lstat(looked_at, *rest, **more)

    machine.restart()
    with monkeypatch.context() as dead:
        dead.setattr(os, "lstat", fail)
        assert machine.found() == (["acme/disk/pv-1"], ["acme/disk/pv-1"])
        machine.tear_down()
        assert machine.calls()[-1] == f"unmount {path}"


def test_a_type_that_shows_the_host_is_not_mounted_for_a_driver_that_mounts_no_devices(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.install("flex_driver.sh")
    (machine.here / "mountdevice").touch()  # the agent mounts
    with pytest.raises(OSError, match=r"no file system of type 'fuse\.sh' is mounted for a pod"):
        machine.mount_device(fsType="fuse.sh")
    assert not is_mount_point(machine.device)


def test_without_an_attach_detach_controller_it_is_refused() -> None:
    pod = {**POD, "spec": {"volumes": [{"name": "v", "flexVolume": {"driver": "acme/disk"}}]}}
    found = volume_spec(pod, "v", Node(alone=True, flex_attaches=True))
    assert isinstance(found, Refused)
    assert (found.step, found.reason) == (
        "AttachVolume.Attach",
        "attaching volumes from the kubelet is not supported",
    )
