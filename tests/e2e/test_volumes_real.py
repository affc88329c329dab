"""Volumes on the machine's own kernel: tmpfs mounts, propagation, and the mounts that must survive a removal."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.volume.adapters import root_dir
from services.volume.adapters.atomic_writer import AtomicWriter
from services.volume.adapters.mounts import bind_to_itself, mount_table, mount_tmpfs, unmount
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.files_source import Files
from services.volume.core.files.payload import PayloadFile, SetUpInputs
from services.volume.core.operations.operations import UnmountVolume
from services.volume.plugins.config_map import ConfigMapPlugin
from services.volume.plugins.downward_api import DownwardApiPlugin
from services.volume.plugins.empty_dir import EmptyDir, EmptyDirPlugin
from services.volume.plugins.files import FilesPlugin
from services.volume.plugins.plugin_calls import PluginCalls
from services.volume.plugins.projected import ProjectedPlugin
from services.volume.plugins.secret import SecretPlugin
from shared.files.tree_removal import RemovalProgress, remove_tree
from shared.host.mountinfo import below, containing
from shared.time.clock import SystemClock
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = pytest.mark.root

MEMORY = EmptyDir(medium="Memory", size=1 << 20)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "root"
    for point in below(mount_table(), str(tmp_path)):
        unmount(Path(point))
    assert below(mount_table(), str(tmp_path)) == []


@pytest.fixture
def directories(root: Path) -> PodDirectories:
    return PodDirectories(str(root))


def mounts_at(path: Path) -> int:
    return [mount.path for mount in mount_table()].count(str(path))


def test_a_memory_volume_is_a_tmpfs_of_its_size_and_is_removed_with_its_content(directories: PodDirectories) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "shm", MEMORY, SetUpInputs()))
    (path / "data").write_text("x")
    mount = containing(mount_table(), str(path))
    assert mount is not None
    assert (mount.path, mount.filesystem) == (str(path), "tmpfs")
    assert os.statvfs(path).f_blocks * os.statvfs(path).f_frsize == 1 << 20
    volumes.tear_down("u", "shm", RemovalProgress())
    assert (mounts_at(path), path.exists()) == (0, False)
    directories.remove("u")
    assert directories.uids() == []


PAGES = sorted(int(path.name[10:-2]) * 1024 for path in Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB"))


@pytest.mark.skipif(not PAGES, reason="this kernel has no huge pages")
def test_huge_pages_are_a_mount_of_their_size_that_another_process_finds_and_takes_away(
    directories: PodDirectories,
) -> None:
    source = EmptyDir("HugePages", fs_group=4242, page_size=PAGES[0])
    for _ in range(2):  # a new process each
        path = Path(EmptyDirPlugin(directories, SystemClock()).set_up("u", "huge", source, SetUpInputs()))
    mount = containing(mount_table(), str(path))
    assert mount is not None
    assert (mounts_at(path), mount.filesystem, os.statvfs(path).f_bsize) == (1, "hugetlbfs", PAGES[0])
    assert path.stat().st_gid == 4242
    volumes = EmptyDirPlugin(directories, SystemClock())
    with pytest.raises(
        OSError, match=f"pod u: mounted dir .* pagesize '{PAGES[0]}' and requested medium size '1' differ"
    ):
        volumes.set_up("u", "huge", EmptyDir("HugePages", page_size=1), SetUpInputs())
    unmount(path)  # as a reboot does
    volumes.set_up("u", "huge", source, SetUpInputs())
    assert mounts_at(path) == 1
    volumes.tear_down("u", "huge", RemovalProgress())
    assert (mounts_at(path), directories.empty_dirs("u")) == (0, [])


def test_the_size_of_a_memory_volume_is_kept_by_the_kernel(directories: PodDirectories) -> None:
    path = Path(EmptyDirPlugin(directories, SystemClock()).set_up("u", "shm", MEMORY, SetUpInputs()))
    with pytest.raises(OSError) as full:
        (path / "data").write_bytes(b"x" * (2 << 20))
    assert full.value.errno == errno.ENOSPC


def test_a_volume_stays_while_a_process_has_a_file_of_a_subpath_open(directories: PodDirectories) -> None:
    calls = PluginCalls(directories, SystemClock())
    path = Path(EmptyDirPlugin(directories, SystemClock()).set_up("u", "shm", MEMORY, SetUpInputs()))
    (path / "data").mkdir()
    bound = Path(calls.subpaths.prepare("u", "shm", "c", 0, str(path), "data"))
    unmount_volume = UnmountVolume("u", "shm")
    with (bound / "file").open("w") as file:
        with pytest.raises(OSError) as busy:
            calls.perform(unmount_volume, SetUpInputs(), RemovalProgress())
        assert (busy.value.errno, mounts_at(bound), mounts_at(path)) == (errno.EBUSY, 1, 1)
        file.write("kept")
    assert (path / "data" / "file").read_text() == "kept"
    calls.perform(unmount_volume, SetUpInputs(), RemovalProgress())
    assert (mounts_at(bound), mounts_at(path), path.exists()) == (0, 0, False)


def test_a_tmpfs_that_a_reboot_took_is_mounted_again_though_the_marker_is_there(directories: PodDirectories) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "shm", MEMORY, SetUpInputs()))
    unmount(path)
    volumes.set_up("u", "shm", MEMORY, SetUpInputs())
    assert mounts_at(path) == 1


def test_a_tmpfs_has_the_mode_that_its_pod_asks_for(directories: PodDirectories) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    source = EmptyDir("Memory", 1 << 20, mode=0o1750)
    path = Path(volumes.set_up("u", "shm", source, SetUpInputs()))
    assert (mounts_at(path), path.stat().st_mode & 0o7777) == (1, 0o1750)


def test_files_belong_to_the_users_that_their_pod_names(tmp_path: Path) -> None:
    payload = {"x": PayloadFile(b"x", 0o400, 4242), "y": PayloadFile(b"y", 0o400)}
    AtomicWriter(tmp_path).write(payload, wall=1.0)
    status = [(tmp_path / name).stat() for name in "xy"]
    assert [(one.st_uid, one.st_mode & 0o777) for one in status] == [(4242, 0o400), (0, 0o400)]


def test_a_volume_with_an_fs_group_belongs_to_the_group(directories: PodDirectories) -> None:
    for name, source in (("a", EmptyDir(fs_group=4242)), ("b", EmptyDir("Memory", 1 << 20, 4242))):
        status = Path(EmptyDirPlugin(directories, SystemClock()).set_up("u", name, source, SetUpInputs())).stat()
        assert (status.st_gid, status.st_mode & 0o2070) == (4242, 0o2070)


def test_a_mount_below_a_volume_stops_its_teardown_and_loses_nothing(
    directories: PodDirectories, tmp_path: Path
) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "cache", EmptyDir(), SetUpInputs()))
    (path / "inner").mkdir()
    (path / "inner" / "precious").write_text("kept")
    bind_to_itself(path / "inner")
    with pytest.raises(OSError, match=r"cannot delete directory .*inner: it is a mount point"):
        volumes.tear_down("u", "cache", RemovalProgress())
    with pytest.raises(OSError, match=r"cannot delete directory .*: it is a mount point"):
        remove_tree(path)
    with pytest.raises(OSError, match="Orphaned pod found, but volumes are not cleaned up"):
        directories.remove("u")
    assert (path / "inner" / "precious").read_text() == "kept"
    unmount(path / "inner")
    volumes.tear_down("u", "cache", RemovalProgress())
    directories.remove("u")


def test_a_mount_elsewhere_in_a_pod_directory_keeps_it(directories: PodDirectories) -> None:
    directories.make("u")
    subpath = directories.pod("u") / "volume-subpaths" / "v" / "c" / "0"
    subpath.mkdir(parents=True)
    mount_tmpfs(subpath, size=4096)
    (subpath / "precious").write_text("kept")
    with pytest.raises(OSError, match="it is a mount point"):
        directories.remove("u")
    assert (subpath / "precious").read_text() == "kept"


def test_a_tmpfs_in_use_is_an_error_and_not_a_crash(directories: PodDirectories) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "shm", MEMORY, SetUpInputs()))
    with (path / "open").open("w"):
        with pytest.raises(OSError) as busy:
            volumes.tear_down("u", "shm", RemovalProgress())
        assert busy.value.errno == errno.EBUSY
    volumes.tear_down("u", "shm", RemovalProgress())
    assert not path.exists()


FILES = {"user": PayloadFile(b"root", 0o400), "deep/key": PayloadFile(b"k", 0o644)}


def source(**more: Any) -> Files:
    return Files(parts=(), default_mode=0o644, size=1 << 20, **more)


def secrets(directories: PodDirectories) -> SecretPlugin:
    return SecretPlugin(directories, SystemClock())


@pytest.mark.parametrize("plugin", [SecretPlugin, ConfigMapPlugin, DownwardApiPlugin, ProjectedPlugin])
def test_volumes_of_files_lie_in_memory_but_for_config_maps_and_leave_nothing(
    directories: PodDirectories, plugin: type[FilesPlugin]
) -> None:
    volumes = plugin(directories, SystemClock())
    path = Path(volumes.show("u", "v", source(), FILES))
    assert mounts_at(path) == (0 if plugin is ConfigMapPlugin else 1)
    assert [(path / name).read_text() for name in FILES] == ["root", "k"]
    assert (directories.pod("u") / "plugins" / "kubernetes.io~empty-dir" / "wrapped_v" / "ready").exists()
    volumes.tear_down("u", "v", RemovalProgress())
    assert (mounts_at(path), path.exists()) == (0, False)
    directories.remove("u")
    assert directories.uids() == []


def test_a_restart_uses_the_tmpfs_that_is_there_and_a_running_reader_sees_the_new_files(
    directories: PodDirectories,
) -> None:
    path = Path(secrets(directories).show("u", "v", source(), FILES))
    container = os.open(path, os.O_DIRECTORY)
    try:
        again = secrets(PodDirectories(str(directories.pods.parent)))
        [found] = again.reconstruct("u")
        assert (found.name, found.plugin, found.host_path, found.complete) == ("v", SecretPlugin.name, str(path), True)
        again.show("u", "v", source(), {"user": PayloadFile(b"new", 0o400)})
        assert mounts_at(path) == 1
        seen = Path(f"/proc/self/fd/{container}")
        assert (seen / "user").read_text() == "new"
        assert [entry.name for entry in seen.iterdir() if not entry.name.startswith("..")] == ["user"]
    finally:
        os.close(container)


def test_a_tmpfs_that_a_reboot_took_is_not_complete_and_is_filled_again(directories: PodDirectories) -> None:
    volumes = secrets(directories)
    path = Path(volumes.show("u", "v", source(), FILES))
    unmount(path)
    assert [found.complete for found in volumes.reconstruct("u")] == [False]
    volumes.show("u", "v", source(), FILES)
    assert (mounts_at(path), (path / "user").read_text()) == (1, "root")


def test_a_first_set_up_that_fails_leaves_nothing_and_a_later_one_leaves_the_old(directories: PodDirectories) -> None:
    volumes = secrets(directories)
    path = directories.volume("u", SecretPlugin.name, "v")
    large = {"user": PayloadFile(b"x" * (2 << 20), 0o644)}
    with pytest.raises(OSError, match="No space"):
        volumes.show("u", "v", source(), large)
    assert (mounts_at(path), path.exists()) == (0, False)
    volumes.show("u", "v", source(), FILES)
    with pytest.raises(OSError, match="No space"):
        volumes.show("u", "v", source(), large)
    assert (path / "user").read_text() == "root"
    assert os.statvfs(path).f_bfree > 0


@pytest.mark.parametrize("plugin", [SecretPlugin, ConfigMapPlugin])
def test_files_belong_to_the_group_and_to_the_user_they_are_for(
    directories: PodDirectories, plugin: type[FilesPlugin]
) -> None:
    files = {**FILES, "token": PayloadFile(b"jwt", 0o600, 1000)}
    path = Path(plugin(directories, SystemClock()).show("u", "v", source(fs_group=4242), files))
    seen = {name: (path / name).stat() for name in (".", "user", "deep", "deep/key", "token")}
    assert {name: (s.st_uid, s.st_gid) for name, s in seen.items()} == {
        ".": (0, 4242),
        "user": (0, 4242),
        "deep": (0, 4242),
        "deep/key": (0, 4242),
        "token": (1000, 4242),
    }
    assert [oct(seen[name].st_mode & 0o7777) for name in ("user", "deep", "deep/key", "token")] == [
        "0o440",
        "0o2755",
        "0o644",
        "0o640",
    ]
    assert seen["."].st_mode & 0o2550 == 0o2550


def test_other_volumes_find_a_directory_to_be_mounted_on(directories: PodDirectories) -> None:
    nested = source(nested=("mnt/a", "user/x"))
    path = Path(secrets(directories).show("u", "v", nested, FILES))
    assert (path / "mnt" / "a").is_dir()
    assert (path / "user").is_file()


def test_the_root_directory_becomes_a_shared_mount_once(root: Path) -> None:
    for _ in range(2):
        assert root_dir.prepare(str(root)) is None
    mount = containing(mount_table(), str(root))
    assert mount is not None
    assert (mount.path, mount.shared, mounts_at(root)) == (str(root), True, 1)


def test_a_kill_between_bind_and_share_is_repaired(root: Path) -> None:
    root.mkdir()
    bind_to_itself(root)
    assert root_dir.prepare(str(root)) is None
    assert mounts_at(root) == 1


def test_without_the_right_to_mount_the_root_directory_is_used_as_it_is(root: Path) -> None:
    program = "import sys; from services.volume.adapters.root_dir import prepare; print(prepare(sys.argv[1]))"
    command = ["setpriv", "--bounding-set", "-sys_admin", sys.executable, "-c", program, str(root)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT_SECONDS).stdout.strip()
    expected = (
        f"{root}: cannot be made a shared mount: operation not permitted; Bidirectional volume mounts will not work"
    )
    assert answer == expected
    assert root.is_dir()
