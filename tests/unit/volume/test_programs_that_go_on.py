"""A program that mounts or unmounts goes on after a kill of the process that began it; nothing is done beside it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from services.volume.adapters import block_devices, programs
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.programs import running_on
from services.volume.core.files.payload import SetUpInputs
from services.volume.plugins import nfs
from services.volume.plugins.nfs import Nfs, NfsPlugin
from shared.files.tree_removal import RemovalProgress
from shared.time.clock import SystemClock

DEADLINE = 60.0  # seconds
SOURCE = Nfs("storage:/export")
# A process like volume, for which the volume is mounted at each look, or at none.
VOLUME = """
import sys
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.payload import SetUpInputs
from services.volume.plugins import nfs
from shared.time.clock import SystemClock
from shared.files.tree_removal import RemovalProgress
nfs.is_mount_point = lambda _: sys.argv[2] == "umount"
plugin = nfs.NfsPlugin(PodDirectories(sys.argv[1]), SystemClock())
if sys.argv[2] == "umount":
    plugin.tear_down("u", "data", RemovalProgress())
plugin.set_up("u", "data", nfs.Nfs("storage:/export"), SetUpInputs())
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NfsPlugin]:
    """Programs of this directory go on until the file `end` is there; nothing is mounted for this process."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("mount", "umount"):
        (programs / name).write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/end ]; do sleep 0.05; done\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(nfs, "is_mount_point", lambda _: False)
    yield NfsPlugin(PodDirectories(str(tmp_path)), SystemClock())
    (tmp_path / "end").touch()


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def killed_in(program: str, root: Path) -> Path:
    """Kill a process that runs the program for the volume; return the volume's directory."""
    path = PodDirectories(str(root)).volume("u", NfsPlugin.name, "data")
    path.mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", VOLUME, str(root), program])
    wait(lambda: running_on(path, program))
    process.send_signal(signal.SIGKILL)
    process.wait(DEADLINE)
    return path


def test_a_volume_is_not_mounted_beside_an_unmount_of_a_killed_process(plugin: NfsPlugin, tmp_path: Path) -> None:
    path = killed_in("umount", tmp_path)
    with pytest.raises(OSError, match=f"an earlier umount of {path} has not ended"):
        plugin.set_up("u", "data", SOURCE, SetUpInputs())
    (tmp_path / "end").touch()
    wait(lambda: not running_on(path, "umount"))
    assert plugin.set_up("u", "data", SOURCE, SetUpInputs()) == str(path)


def test_a_volume_is_neither_mounted_nor_removed_beside_a_mount_of_a_killed_process(
    plugin: NfsPlugin, tmp_path: Path
) -> None:
    path = killed_in("mount", tmp_path)
    with pytest.raises(OSError, match=f"an earlier mount of {path} has not ended"):
        plugin.set_up("u", "data", SOURCE, SetUpInputs())
    with pytest.raises(OSError, match=f"an earlier mount of {path} has not ended"):
        plugin.tear_down("u", "data", RemovalProgress())
    assert path.is_dir()
    (tmp_path / "end").touch()
    wait(lambda: not running_on(path, "mount"))
    plugin.tear_down("u", "data", RemovalProgress())
    assert not path.exists()


@pytest.mark.parametrize("program", ["mount", "umount"])
def test_a_program_that_takes_too_long_is_killed_with_its_helper(
    plugin: NfsPlugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    path = PodDirectories(str(tmp_path)).volume("u", NfsPlugin.name, "data")
    script = tmp_path / "programs" / program
    helper = script.with_name(f"{program}.nfs")
    script.rename(helper)
    script.write_text(f'#!/bin/sh\n{helper} "$@"\nexit 0\n')
    script.chmod(0o755)
    monkeypatch.setattr(nfs, "UNMOUNT_SECONDS", 0.5)
    monkeypatch.setattr(block_devices, "run_with_helpers", partial(programs.run_with_helpers, seconds=0.5))
    monkeypatch.setattr(nfs, "is_mount_point", lambda _: program == "umount")
    with pytest.raises(OSError, match=rf"{program} did not end within 0\.5 s"):
        plugin.set_up("u", "data", SOURCE, SetUpInputs()) if program == "mount" else nfs._unmount(path)
    wait(lambda: not running_on(path, program))


@pytest.mark.long
def test_another_path_is_no_hindrance(plugin: NfsPlugin, tmp_path: Path) -> None:
    path = killed_in("mount", tmp_path)
    assert not running_on(path.parent, "mount") and not running_on(path, "umount")
    plugin.tear_down("u", "other", RemovalProgress())


@pytest.mark.long
def test_a_process_of_a_container_is_no_hindrance(
    plugin: NfsPlugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = killed_in("mount", tmp_path)
    (tmp_path / "another").symlink_to("pid:[1]")
    with monkeypatch.context() as patched:
        patched.setattr(programs, "_PID_NAMESPACE", tmp_path / "another")
        assert not running_on(path, "mount")
    assert running_on(path, "mount")
