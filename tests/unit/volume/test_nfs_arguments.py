"""What the program mount receives: no value of a pod is an option of the program, or a type that shows the host."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from services.volume.adapters import block_devices
from services.volume.adapters.programs import ProgramResult
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused
from services.volume.plugins import nfs
from services.volume.plugins.nfs import NfsPlugin
from services.volume.plugins.registry import volume_spec

FSTAB = "-T/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/cache/a"


@pytest.mark.parametrize("server", ["-", "-T", "--bind", FSTAB, "-a::1"])
def test_an_nfs_server_that_begins_with_a_dash_is_refused(server: str) -> None:
    pod = {"spec": {"volumes": [{"name": "v", "nfs": {"server": server, "path": "/fstab"}}]}}
    assert volume_spec(pod, "v", Node()) == Refused("the server of an nfs volume must not begin with -")


def test_an_nfs_mount_option_that_begins_with_a_dash_is_refused() -> None:
    source = {"server": "storage", "path": "/export"}
    persistent = PersistentVolume(
        name="pv", spec={"nfs": source, "mountOptions": ["hard", "-T/fstab"]}, annotations={}, claim={}
    )
    refused = NfsPlugin.read_persistent({}, persistent, source)
    assert refused == Refused("a mount option of an nfs volume must not begin with -")


def test_the_source_of_a_mount_is_no_option_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = list[tuple[str, ...]]()

    def run(*command: str, keep_open: Sequence[int]) -> ProgramResult:
        commands.append(command)
        return ProgramResult(0, "")

    monkeypatch.setattr(block_devices, "run_with_helpers", run)
    block_devices.mount_filesystem("--bind", Path("/target"), "nfs", ["ro"])
    assert commands == [("mount", "-t", "nfs", "-o", "ro", "--", "--bind", "/target")]


@pytest.mark.parametrize(
    "filesystem", ["proc", "sysfs", "devtmpfs", "debugfs", "bpf", "cgroup2", "fuse.bash", "ext4,proc", "../x", "", "-a"]
)
def test_what_shows_the_host_or_runs_a_program_is_no_file_system_of_a_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, filesystem: str
) -> None:
    commands = list[tuple[str, ...]]()

    def run(*command: str, **_: object) -> ProgramResult:
        commands.append(command)
        return ProgramResult(0, "TYPE=ext4")

    monkeypatch.setattr(block_devices, "run", run)
    monkeypatch.setattr(block_devices, "run_with_helpers", run)
    device = tmp_path / "device"
    device.touch()
    with pytest.raises(OSError, match=r"no file system of type .* is mounted for a pod"):
        block_devices.mount_filesystem(str(device), tmp_path, filesystem, ["rw"])
    with pytest.raises(OSError, match=r"no file system of type .* is mounted for a pod"):
        block_devices.format_and_mount(str(device), tmp_path, filesystem, (), read_only=False)
    assert commands == []


def test_the_unmount_is_forced_where_the_server_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = list[tuple[str, ...]]()

    def run(*command: str, seconds: float) -> ProgramResult:
        commands.append(command)
        if len(commands) == 1:
            raise TimeoutError
        return ProgramResult(0, "")

    monkeypatch.setattr(nfs, "run_with_helpers", run)
    nfs._unmount(tmp_path)
    assert commands == [("umount", str(tmp_path)), ("umount", "-f", str(tmp_path))]
