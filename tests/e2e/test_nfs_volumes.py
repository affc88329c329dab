"""nfs volumes with the kernel's mount table and a program `mount` that binds a directory in place of the export: the
arguments, a mount that fails, one that its server has forgotten, and the data that stays."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.volume.adapters.mounts import mount_table, unmount_all
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.payload import SetUpInputs
from services.volume.plugins.nfs import Nfs, NfsPlugin
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import below
from shared.time.clock import SystemClock

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]


class Server:
    """An export, as a directory; `log`: the arguments of each mount."""

    def __init__(self, directory: Path) -> None:
        self.export, self.log = directory / "export", directory / "log"
        self.export.mkdir()
        (self.export / "data").write_text("kept")
        self.log.touch()
        programs = directory / "bin"
        programs.mkdir()
        script = f'#!/bin/sh\necho "$@" >> {self.log}\n[ -e {directory}/away ] && {{ echo refused; exit 32; }}\n'
        script += f'for target; do :; done\nexec /bin/mount --bind {self.export} "$target"\n'
        (programs / "mount").write_text(script)
        (programs / "mount").chmod(0o755)
        self.path = f"{programs}:{os.environ['PATH']}"
        self.away = directory / "away"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(tmp_path)
    monkeypatch.setenv("PATH", server.path)
    yield server
    for point in below(mount_table(), str(tmp_path)):
        unmount_all(Path(point))


@pytest.fixture
def directories(tmp_path: Path) -> PodDirectories:
    return PodDirectories(str(tmp_path / "root"))


def test_an_export_is_mounted_once_for_each_pod_and_its_data_stays(server: Server, directories: PodDirectories) -> None:
    plugin, source = NfsPlugin(directories, SystemClock()), Nfs("storage:/export", ("hard", "ro"))
    for _ in range(2):
        path = Path(plugin.set_up("u", "pv", source, SetUpInputs()))
    assert server.log.read_text() == f"-t nfs -o hard,ro -- storage:/export {path}\n"
    assert (path / "data").read_text() == "kept"
    for _ in range(2):
        plugin.tear_down("u", "pv", RemovalProgress())
    assert plugin.reconstruct("u") == []
    directories.remove("u")
    assert (server.export / "data").read_text() == "kept"


def test_a_mount_that_fails_has_the_kubelets_text_and_leaves_an_empty_directory(
    server: Server, directories: PodDirectories
) -> None:
    server.away.touch()
    plugin = NfsPlugin(directories, SystemClock())
    with pytest.raises(OSError, match=r"mount failed: exit status 32 Mounting command: mount .* Output: refused"):
        plugin.set_up("u", "pv", Nfs("storage:/export"), SetUpInputs())
    assert [volume.name for volume in plugin.reconstruct("u")] == ["pv"]
    plugin.tear_down("u", "pv", RemovalProgress())
    directories.remove("u")


def test_a_mount_that_its_server_has_forgotten_is_mounted_again(
    server: Server, directories: PodDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, source = NfsPlugin(directories, SystemClock()), Nfs("storage:/export")
    path, scandir = Path(plugin.set_up("u", "pv", source, SetUpInputs())), os.scandir

    def stale(listed: Path) -> object:
        if listed == path:
            raise OSError(errno.ESTALE, "Stale file handle")
        return scandir(listed)

    with monkeypatch.context() as context:
        context.setattr(os, "scandir", stale)
        plugin.set_up("u", "pv", source, SetUpInputs())
    assert len(server.log.read_text().splitlines()) == 2
    assert [mount.path for mount in mount_table()].count(str(path)) == 1
    plugin.tear_down("u", "pv", RemovalProgress())
    assert not path.exists()
