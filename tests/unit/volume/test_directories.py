"""What volume does to directories, without any mount: made, found, filled by hostile pods, removed."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.volume.adapters import pod_directories
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.payload import SetUpInputs
from services.volume.plugins.empty_dir import EmptyDir, EmptyDirPlugin
from services.volume.plugins.host_path import HostPath, check_host_path
from shared.files.tree_removal import RemovalProgress, remove_tree
from shared.time.clock import SystemClock


@pytest.fixture
def directories(tmp_path: Path) -> PodDirectories:
    return PodDirectories(str(tmp_path / "root"))


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("narrow_umask")
def test_pod_directories_and_an_empty_dir_have_their_modes_whatever_the_umask(directories: PodDirectories) -> None:
    path = Path(EmptyDirPlugin(directories, SystemClock()).set_up("u", "cache", EmptyDir(), SetUpInputs()))
    assert path == directories.pods / "u" / "volumes" / "kubernetes.io~empty-dir" / "cache"
    marker = directories.pods / "u" / "plugins" / "kubernetes.io~empty-dir" / "cache"
    assert [mode(p) for p in (path, directories.pod("u"), path.parent.parent, marker)] == [0o777, 0o750, 0o750, 0o750]
    assert (marker / "ready").exists()


@pytest.mark.usefixtures("narrow_umask")
@pytest.mark.parametrize("asked", [0, 0o750, 0o1777])
def test_an_empty_dir_has_the_mode_that_its_pod_asks_for(directories: PodDirectories, asked: int) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "cache", EmptyDir(mode=asked), SetUpInputs()))
    assert mode(path) == asked
    path.chmod(0o711)
    volumes.set_up("u", "cache", EmptyDir(mode=asked), SetUpInputs())
    assert mode(path) == 0o711, "what a container changes stays"


def test_the_mode_is_given_again_after_a_kill_before_the_marker(directories: PodDirectories) -> None:
    path = directories.empty_dir("u", "cache")
    path.mkdir(parents=True)
    path.chmod(0o777)
    EmptyDirPlugin(directories, SystemClock()).set_up("u", "cache", EmptyDir(mode=0o700), SetUpInputs())
    assert mode(path) == 0o700


def test_setting_up_again_keeps_the_content(directories: PodDirectories) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "cache", EmptyDir(), SetUpInputs()))
    (path / "data").write_text("kept")
    path.chmod(0o700)
    assert volumes.set_up("u", "cache", EmptyDir(), SetUpInputs()) == str(path)
    assert ((path / "data").read_text(), mode(path)) == ("kept", 0o700)


def test_a_kill_before_the_marker_is_repaired_by_setting_up_again(directories: PodDirectories) -> None:
    path = directories.empty_dir("u", "cache")
    path.mkdir(parents=True)
    path.chmod(0o700)
    EmptyDirPlugin(directories, SystemClock()).set_up("u", "cache", EmptyDir(), SetUpInputs())
    assert mode(path) == 0o777


def test_a_removed_directory_is_made_again(directories: PodDirectories) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "cache", EmptyDir(), SetUpInputs()))
    path.rmdir()
    volumes.set_up("u", "cache", EmptyDir(), SetUpInputs())
    assert mode(path) == 0o777


def test_tearing_down_takes_content_and_marker_and_may_be_repeated(directories: PodDirectories) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "cache", EmptyDir(), SetUpInputs()))
    (path / "deep" / "er").mkdir(parents=True)
    (path / "deep" / "er" / "file").write_text("x")
    assert directories.empty_dirs("u") == ["cache"]
    for _ in range(2):
        volumes.tear_down("u", "cache", RemovalProgress())
        assert directories.empty_dirs("u") == []
    directories.remove("u")
    directories.remove("u")
    assert directories.uids() == []


def test_a_marker_left_by_a_killed_teardown_is_found_again(directories: PodDirectories) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    Path(volumes.set_up("u", "cache", EmptyDir(), SetUpInputs())).rmdir()
    assert directories.empty_dirs("u") == ["cache"]
    volumes.tear_down("u", "cache", RemovalProgress())
    assert directories.empty_dirs("u") == []


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../../etc"])
def test_no_name_leads_out_of_its_directory(directories: PodDirectories, name: str) -> None:
    with pytest.raises(OSError, match="cannot be the name of a directory"):
        EmptyDirPlugin(directories, SystemClock()).set_up(name, "v", EmptyDir(), SetUpInputs())
    with pytest.raises(OSError, match="cannot be the name of a directory"):
        EmptyDirPlugin(directories, SystemClock()).tear_down("u", name, RemovalProgress())
    with pytest.raises(OSError, match="cannot be the name of a directory"):
        directories.remove(name)


def test_a_pod_started_again_while_its_old_directory_is_removed_keeps_its_files(
    directories: PodDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories.make("u")
    (directories.pod("u") / "containers" / "main").mkdir(parents=True)
    (directories.pod("u") / "etc-hosts").write_text("old")

    def remove_slowly(path: Path, removed: RemovalProgress | None = None) -> None:
        (directories.pod("u") / "containers" / "main").mkdir(parents=True)
        (directories.pod("u") / "etc-hosts").write_text("new")
        remove_tree(path, removed)

    monkeypatch.setattr(pod_directories, "remove_tree", remove_slowly)
    directories.remove("u")
    assert (directories.pod("u") / "etc-hosts").read_text() == "new"
    assert (directories.pod("u") / "containers" / "main").is_dir()
    assert [path.name for path in directories.pods.iterdir()] == ["u"]


def test_a_removal_that_was_cut_short_is_found_again_by_its_uid(
    directories: PodDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, removed: RemovalProgress | None = None) -> None:
        raise OSError(5, "killed", str(path))

    directories.make("u.1")
    (directories.pod("u.1") / "etc-hosts").write_text("x")
    directories.make("u")
    with monkeypatch.context() as broken, pytest.raises(OSError, match="killed"):
        broken.setattr(pod_directories, "remove_tree", killed)
        directories.remove("u.1")
    assert not directories.pod("u.1").exists()
    assert directories.uids() == ["u", "u.1"]
    directories.remove("u")
    assert directories.uids() == ["u.1"]
    directories.remove("u.1")
    assert list(directories.pods.iterdir()) == []


def test_data_in_a_volume_of_an_unknown_plugin_keeps_the_pod_directory(directories: PodDirectories) -> None:
    directories.make("u")
    data = directories.pod("u") / "volumes" / "example.com~disk" / "vol" / "precious"
    data.mkdir(parents=True)
    with pytest.raises(OSError, match=r'orphaned pod "u" found, but failed to rmdir\(\) volume at path'):
        directories.remove("u")
    data.rmdir()
    (directories.pod("u") / "etc-hosts").write_text("x")
    (directories.pod("u") / "containers" / "c").mkdir(parents=True)
    (directories.pod("u") / "containers" / "c" / "12345678").write_text("x")
    directories.remove("u")
    assert directories.uids() == []


def test_a_file_in_the_volumes_directory_keeps_the_pod_directory(directories: PodDirectories) -> None:
    directories.make("u")
    (directories.pod("u") / "volumes" / "stray").write_text("x")
    with pytest.raises(OSError, match="error occurred when trying to remove the volumes dir"):
        directories.remove("u")


def test_each_host_path_type_accepts_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for path, kind in [
        (tmp_path, "Directory"),
        (tmp_path / "link", "Directory"),
        (tmp_path / "file", "File"),
        (Path("/dev/null"), "CharDevice"),
        (tmp_path / "absent", ""),
    ]:
        assert check_host_path(HostPath(str(path), kind)) == str(path)
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("Directory", "hostPath type check failed: {} is not a directory"),
        ("DirectoryOrCreate", "hostPath type check failed: {} is not a directory"),
        ("Socket", "hostPath type check failed: {} is not a socket file"),
        ("CharDevice", "hostPath type check failed: {} is not a character device"),
        ("BlockDevice", "hostPath type check failed: {} is not a block device"),
        ("Nonsense", "Nonsense is an invalid volume type"),
    ],
)
def test_a_file_of_the_wrong_type_is_refused_with_the_kubelets_text(tmp_path: Path, kind: str, text: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OSError) as refused:
        check_host_path(HostPath(str(file), kind))
    assert refused.value.strerror == text.format(file)


def test_a_directory_or_nothing_is_no_file(tmp_path: Path) -> None:
    for path, kind in [(tmp_path, "File"), (tmp_path, "FileOrCreate"), (tmp_path / "absent", "File")]:
        with pytest.raises(OSError) as refused:
            check_host_path(HostPath(str(path), kind))
        assert refused.value.strerror == f"hostPath type check failed: {path} is not a file"


@pytest.mark.usefixtures("narrow_umask")
def test_what_is_to_be_created_is_created_with_the_kubelets_modes(tmp_path: Path) -> None:
    directory, file = tmp_path / "a" / "b", tmp_path / "file"
    check_host_path(HostPath(str(directory), "DirectoryOrCreate"))
    check_host_path(HostPath(str(file), "FileOrCreate"))
    assert [mode(path) for path in (directory, directory.parent, file)] == [0o755, 0o755, 0o644]
    with pytest.raises(FileNotFoundError):
        check_host_path(HostPath(str(tmp_path / "no" / "file"), "FileOrCreate"))


def test_a_host_path_with_backsteps_is_refused() -> None:
    with pytest.raises(OSError) as refused:
        check_host_path(HostPath("/var/../etc"))
    assert refused.value.strerror == "invalid HostPath `/var/../etc`: must not contain '..'"
