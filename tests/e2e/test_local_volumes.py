"""Local volumes on real directories and loop devices: what is on a device stays, whatever is killed."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import block_devices, block_maps, root_dir
from services.volume.adapters.mounts import mount_table, unmount_all
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import PluginEvent
from services.volume.plugins.local import Local, LocalPlugin
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import below
from shared.time.clock import SystemClock
from tests.support.installed.lacking import require_command
from tests.support.runtime.loop_devices import devices_below, exclusive_loop_devices, is_unused
from tests.support.waits.deadline import WAIT_SECONDS
from tools.leftovers import wait_until

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]
CAP_SYS_RESOURCE = 24


class Machine:
    """A root directory, an image file as a loop device, and new processes of volume."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, str(directory / "root")
        # A process that gets a mount namespace meanwhile, as a container does, has copies of the mounts that there are.
        # Below a shared mount they end there, too, and hold a device no longer than here.
        assert root_dir.prepare(self.root) is None
        self.directories = PodDirectories(self.root)
        self.image = directory / "disk.img"
        self.image.write_bytes(b"")
        os.truncate(self.image, 64 << 20)
        self.device = output("losetup", "-f", "--show", str(self.image))
        self.reported: list[PluginEvent] = []

    @property
    def plugin(self) -> LocalPlugin:
        """As a new process has it."""
        plugin = LocalPlugin(self.directories, SystemClock())
        plugin.report = self.reported.append
        return plugin

    def start(self, uid: str, source: Local) -> Path:
        """Give the volume `pv` to a pod."""
        path = self.plugin.mount_device("pv", source, SetUpInputs())
        gathered = SetUpInputs(device_path=path)
        act = self.plugin.map_block if source.block else self.plugin.set_up
        return Path(act(uid, "pv", source, gathered))

    def stop(self, uid: str) -> None:
        """Take it from the pod."""
        self.plugin.tear_down(uid, "pv", RemovalProgress())
        self.plugin.unmap_block(uid, "pv")

    def mounts(self) -> list[str]:
        return sorted(point for point in below(mount_table(), self.root) if point != self.root)

    def loops(self) -> list[str]:
        """The loop devices on what is below the root directory."""
        return devices_below(self.root)


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    for program in ("losetup", "mkfs.ext4", "blkid", "wipefs"):
        require_command(program)
    if not Path("/dev/loop-control").exists():
        pytest.skip("the kernel of this machine has no loop devices")
    with exclusive_loop_devices():
        machine = Machine(tmp_path)
        yield machine
        for device in machine.loops():
            subprocess.run(["losetup", "-d", device], check=False)
        for point in below(mount_table(), str(tmp_path)):
            unmount_all(Path(point))
        subprocess.run(["losetup", "-d", machine.device], check=False)


def test_a_device_is_formatted_once_shared_by_pods_and_keeps_its_data(machine: Machine) -> None:
    source = Local(machine.device, options=("noatime",), fs_group=4321)
    first, second = machine.start("a", source), machine.start("b", source)
    (first / "data").write_text("kept")
    assert (second / "data").read_text() == "kept"
    assert (first.stat().st_gid, first.stat().st_mode & stat.S_ISGID) == (4321, stat.S_ISGID)
    assert machine.reported == []
    machine.start("b", Local(machine.device, options=("noatime",), fs_group=99))
    text = "The requested fsGroup is 99, but the volume pv has GID 4321. The volume may not be shareable."
    assert machine.reported == [PluginEvent("AlreadyMountedVolume", text, uid="b")]
    assert len(machine.mounts()) == 3
    with pytest.raises(OSError, match="is still mounted by other references"):
        machine.plugin.unmount_device("pv")
    machine.stop("a")
    machine.stop("b")
    machine.plugin.unmount_device("pv")
    assert machine.mounts() == []
    wait_unused(machine)
    assert (machine.start("c", source) / "data").read_text() == "kept"


def test_a_device_with_other_content_is_never_formatted(machine: Machine) -> None:
    (machine.start("a", Local(machine.device)) / "data").write_text("kept")
    end(machine)
    with pytest.raises(OSError, match=r"local: failed to mount device .* \(fstype: vfat\)"):
        machine.start("a", Local(machine.device, filesystem="vfat"))
    (event,) = machine.reported
    assert (event.reason, event.persistent_volume) == ("FailedMountOnFilesystemMismatch", "pv")
    text = f'MountVolume failed for volume "pv" local: failed to mount device {machine.device} at '
    assert event.message.startswith(text) and "(fstype: vfat), error mount failed: exit status " in event.message
    end(machine)
    assert (machine.start("a", Local(machine.device)) / "data").read_text() == "kept"
    end(machine)
    with pytest.raises(OSError, match="cannot mount unformatted disk"):
        os.truncate(machine.image, 0)
        os.truncate(machine.image, 64 << 20)
        subprocess.run(["blockdev", "--flushbufs", machine.device], check=False)
        machine.start("a", Local(machine.device, read_only=True))


def test_a_directory_is_bound_and_read_only_where_the_pod_asks_for_it(machine: Machine) -> None:
    data = machine.directory / "data"
    data.mkdir()
    (data / "file").write_text("kept")
    path = machine.start("a", Local(str(data), read_only=True))
    assert (path / "file").read_text() == "kept"
    with pytest.raises(OSError, match="Read-only file system"):
        (path / "new").write_text("x")
    (machine.start("b", Local(str(data))) / "new").write_text("y")
    for uid in ("a", "b"):
        machine.stop(uid)
        machine.directories.remove(uid)
    machine.plugin.unmount_device("pv")
    assert sorted(entry.name for entry in data.iterdir()) == ["file", "new"]


@pytest.mark.parametrize("path", ["/etc/passwd", "/nowhere/at/all", "../x", "relative", "/dev/null"])
def test_a_path_that_is_neither_a_directory_nor_a_device_is_refused(machine: Machine, path: str) -> None:
    with pytest.raises(OSError, match=r"only directory and block device|No such file|must be absolute"):
        machine.start("a", Local(path))


def test_a_block_volume_is_a_device_that_is_locked_until_the_pod_ends(machine: Machine) -> None:
    source = Local(machine.device, block=True)
    link = machine.start("a", source)
    assert (str(link.readlink()), stat.S_ISBLK(link.stat().st_mode)) == (machine.device, True)
    global_map = machine.directory / "root" / "plugins" / "kubernetes.io~local-volume" / "volumeDevices" / "pv"
    succeeded = 'MapVolume.MapPodDevice succeeded for volume "pv"'
    assert machine.reported == [
        PluginEvent("SuccessfulMountVolume", f'{succeeded} globalMapPath "{global_map}"', "a", is_warning=False),
        PluginEvent("SuccessfulMountVolume", f'{succeeded} volumeMapPath "{link.parent}"', "a", is_warning=False),
    ]
    assert machine.start("b", source) != link
    assert len(machine.loops()) == 2
    machine.start("a", source)
    assert (len(machine.loops()), len(machine.mounts())) == (2, 2)
    with pytest.raises(OSError, match="is still referenced from other Pods"):
        machine.plugin.unmount_device("pv")
    for uid in ("a", "b"):
        assert [volume.name for volume in machine.plugin.reconstruct(uid)] == ["pv"]
        machine.stop(uid)
        assert machine.plugin.reconstruct(uid) == []
        machine.directories.remove(uid)
    machine.plugin.unmount_device("pv")
    assert (machine.loops(), machine.mounts(), machine.plugin.reconstruct_devices()) == ([], [], [])


class KilledError(BaseException):
    """In place of SIGKILL."""


POINTS = {
    False: ("volume.device.probed", "volume.device.formatted", "volume.device.mounted"),
    True: ("volume.block.linked", "volume.block.bound", "volume.block.locked"),
}
END_POINTS = {False: (), True: ("volume.block.unlocked", "volume.block.unbound")}


@pytest.mark.parametrize("block", [False, True])
def test_a_kill_at_each_step_leaves_work_that_the_next_process_completes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, block: bool
) -> None:
    source, point = Local(machine.device, block=block), ""

    def reached(name: str) -> None:
        if name == point:
            raise KilledError

    monkeypatch.setattr(block_devices, "crash_point", reached)
    monkeypatch.setattr(block_maps, "crash_point", reached)
    for point in POINTS[block]:
        with pytest.raises(KilledError):
            machine.start("a", source)
        end(machine)  # the pod may be gone when the next process starts
        if point == "volume.device.formatted":
            subprocess.run(["wipefs", "-qa", machine.device], check=True)
        with pytest.raises(KilledError):
            machine.start("a", source)
        killed, point = point, ""
        undisturbed = machine.start("a", source)  # or it may still be there
        write(undisturbed, block=block)
        expected = machine.mounts(), machine.loops()
        machine.start("a", source)
        assert (machine.mounts(), machine.loops()) == expected
        end(machine)
        assert read(machine.start("a", source), block=block) == "kept", killed
        end(machine)
        if "device" in killed:
            subprocess.run(["wipefs", "-qa", machine.device], check=True)
    for point in END_POINTS[block]:
        machine.start("a", source)
        with pytest.raises(KilledError):
            machine.stop("a")
        assert [volume.name for volume in machine.plugin.reconstruct("a")] == ["pv"]
        point = ""
        end(machine)


def end(machine: Machine) -> None:
    """What the next process does with a pod that is gone; nothing of it is left."""
    machine.stop("a")
    machine.plugin.unmount_device("pv")
    machine.directories.remove("a")
    left: tuple[Any, ...] = (machine.mounts(), machine.loops(), machine.plugin.reconstruct_devices())
    assert left == ([], [], [])
    wait_unused(machine)


def wait_unused(machine: Machine) -> None:
    """Wait until nothing has the device, which has been unmounted, for itself."""
    assert wait_until(lambda: is_unused(machine.device), WAIT_SECONDS), f"{machine.device} is in use"


def write(path: Path, *, block: bool) -> None:
    if block:
        with path.open("r+b") as device:
            device.write(b"kept")
            device.flush()
            os.fsync(device.fileno())
    else:
        (path / "data").write_text("kept")


def read(path: Path, *, block: bool) -> str:
    if not block:
        return (path / "data").read_text()
    with path.open("rb") as device:
        return device.read(4).decode()


def test_a_file_system_grows_to_its_device(machine: Machine) -> None:
    effective = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    if not int(effective.split()[1], 16) >> CAP_SYS_RESOURCE & 1:
        pytest.skip("resizing a mounted ext4 needs CAP_SYS_RESOURCE")
    source = Local(machine.device)
    path = machine.start("a", source)
    (path / "data").write_text("kept")
    before = os.statvfs(path).f_blocks
    os.truncate(machine.image, 128 << 20)
    subprocess.run(["losetup", "-c", machine.device], check=True)
    for _ in range(2):
        machine.plugin.expand("a", "pv", source, 128 << 20, SetUpInputs())
    assert os.statvfs(path).f_blocks > 1.5 * before
    assert (path / "data").read_text() == "kept"


def test_an_xfs_is_made_on_an_empty_device_once_checked_and_grown(machine: Machine) -> None:
    require_command("mkfs.xfs")
    resize(machine, 400 << 20)  # the smallest xfs has 300 MiB
    source = Local(machine.device, filesystem="xfs")
    if not is_known("xfs"):
        pytest.skip("the kernel of this machine has no xfs")
    path = machine.start("a", source)
    (path / "data").write_text("kept")
    before = os.statvfs(path).f_blocks
    end(machine)
    with pytest.raises(OSError, match=r"the device has a file system of type xfs"):
        machine.start("a", Local(machine.device, filesystem="ext4"))
    end(machine)
    path = machine.start("b", source)
    assert (path / "data").read_text() == "kept"
    resize(machine, 800 << 20)
    for _ in range(2):
        machine.plugin.expand("b", "pv", source, 800 << 20, SetUpInputs())
    assert os.statvfs(path).f_blocks > 1.5 * before
    assert (path / "data").read_text() == "kept"


def resize(machine: Machine, size: int) -> None:
    """Give the device this size, in bytes; what is new of it has no content."""
    os.truncate(machine.image, size)
    subprocess.run(["losetup", "-c", machine.device], check=True)


def is_known(filesystem: str) -> bool:
    """Whether the kernel can mount it, as a module where it has one."""
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "-q", filesystem], check=False)
    return filesystem in Path("/proc/filesystems").read_text().split()
