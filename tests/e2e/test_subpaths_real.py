"""Subpaths on the machine's own kernel: what is bound, what is refused, and that no container leaves its volume."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.volume.adapters.mounts import mount_table, unmount
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.subpaths import SubpathError, Subpaths
from services.volume.core.files.files_source import Files
from services.volume.core.files.payload import PayloadFile, SetUpInputs
from services.volume.core.operations.operations import RemovePodDirectory, UnmountVolume
from services.volume.plugins.config_map import ConfigMapPlugin
from services.volume.plugins.empty_dir import EmptyDir, EmptyDirPlugin
from services.volume.plugins.plugin_calls import PluginCalls
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import below
from shared.time.clock import SystemClock
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]


class Pod:
    """A pod with one emptyDir, and its subpaths."""

    def __init__(self, root: Path) -> None:
        self.directories = PodDirectories(str(root))
        self.calls = PluginCalls(self.directories, SystemClock())
        self.config_maps = ConfigMapPlugin(self.directories, SystemClock())
        empty_dirs = EmptyDirPlugin(self.directories, SystemClock())
        self.volume = Path(empty_dirs.set_up("u", "v", EmptyDir(), SetUpInputs()))
        self.place = self.directories.subpaths("u")

    @property
    def subpaths(self) -> Subpaths:
        return Subpaths(self.directories)  # as after a restart, each time

    def prepare(self, path: str, container: str = "c", index: int = 0, root: Path | None = None) -> Path:
        return Path(self.subpaths.prepare("u", "v", container, index, str(root or self.volume), path))

    def refused(self, path: str) -> tuple[str, str]:
        with pytest.raises(SubpathError) as error:
            self.prepare(path)
        return error.value.step, str(error.value)

    def bound(self) -> list[str]:
        return sorted(str(Path(point).relative_to(self.place)) for point in below(mount_table(), str(self.place)))


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    yield Pod(tmp_path / "root")
    for point in below(mount_table(), str(tmp_path)):
        unmount(Path(point))
    assert below(mount_table(), str(tmp_path)) == []


def test_a_directory_is_bound_where_the_kubelet_binds_it(pod: Pod) -> None:
    (pod.volume / "a" / "b").mkdir(parents=True)
    target = pod.prepare("a/b", container="app", index=3)
    assert target == pod.place / "v" / "app" / "3"
    (target / "from-container").write_text("x")
    assert (pod.volume / "a" / "b" / "from-container").read_text() == "x"
    modes = [path.stat().st_mode & 0o7777 for path in (pod.place, pod.place / "v", pod.place / "v" / "app")]
    assert (pod.bound(), modes) == (["v/app/3"], [0o750] * 3)


def test_a_file_is_bound_over_a_file(pod: Pod) -> None:
    (pod.volume / "conf").write_text("one")
    target = pod.prepare("conf")
    target.write_text("two")
    assert ((pod.volume / "conf").read_text(), pod.bound()) == ("two", ["v/c/0"])
    pod.subpaths.release("u", "c")
    assert ((pod.volume / "conf").read_text(), pod.bound(), pod.place.exists()) == ("two", [], False)


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_special_files_are_bound_like_files(pod: Pod, kind: str) -> None:
    os.mkfifo(pod.volume / "s") if kind == "fifo" else os.mknod(pod.volume / "s", 0o140600)
    target = pod.prepare("s")
    assert target.lstat().st_ino == (pod.volume / "s").lstat().st_ino


@pytest.mark.parametrize("mode", [0o777, 0o2775, 0o700, 0o1777])
def test_what_is_missing_is_made_with_the_mode_of_the_volume(pod: Pod, mode: int) -> None:
    pod.volume.chmod(mode)
    before = os.umask(0o077)
    try:
        pod.prepare("new/deep/er")
    finally:
        os.umask(before)
    made = [pod.volume / "new", pod.volume / "new" / "deep", pod.volume / "new" / "deep" / "er"]
    assert [path.stat().st_mode & 0o7777 for path in made] == [mode] * 3


def test_what_is_missing_belongs_to_the_group_of_the_volume(pod: Pod) -> None:
    os.chown(pod.volume, -1, 4242)
    pod.volume.chmod(0o2770)
    pod.prepare("new/deep")
    assert (pod.volume / "new" / "deep").stat().st_gid == 4242


def test_what_is_there_keeps_its_mode_and_owner(pod: Pod) -> None:
    (pod.volume / "own").mkdir(mode=0o711)
    os.chown(pod.volume / "own", 1000, 1000)
    status = pod.prepare("own").stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o711, 1000, 1000)


def test_a_symlink_inside_the_volume_is_followed(pod: Pod) -> None:
    (pod.volume / "real").mkdir()
    (pod.volume / "link").symlink_to("real")
    (pod.volume / "absolute").symlink_to(pod.volume / "real")
    assert {pod.prepare(path, index=i).stat().st_ino for i, path in enumerate(["link", "absolute"])} == {
        (pod.volume / "real").stat().st_ino
    }


@pytest.mark.parametrize("target", ["/etc", 40 * "../" + "etc", "/proc/self/root", "/"])
@pytest.mark.parametrize("path", ["out", "out/passwd", "out/no-such", "./out"])
def test_a_symlink_out_of_the_volume_is_refused_and_nothing_is_made(pod: Pod, target: str, path: str) -> None:
    (pod.volume / "out").symlink_to(target)
    step, reason = pod.refused(path)
    assert (step in ("prepare subPath", "create subPath directory"), reason) == (True, "leads out of the volume")
    assert (pod.bound(), Path("/etc/no-such").exists(), Path("/no-such").exists()) == ([], False, False)


@pytest.mark.parametrize(
    ("path", "step", "reason"),
    [
        ("loop", "prepare subPath", "cannot be resolved"),
        ("dangling", "create subPath directory", "a symlink in it leads nowhere"),
        ("dangling/x", "create subPath directory", "a symlink in it leads nowhere"),
        ("file/x", "prepare subPath", ""),
        ("../v", "prepare subPath", "is no path inside a volume"),
        ("/etc", "prepare subPath", "is no path inside a volume"),
        ("a/../../b", "prepare subPath", "is no path inside a volume"),
        ("x" * 300, "", ""),
    ],
)
def test_paths_that_cannot_be(pod: Pod, path: str, step: str, reason: str) -> None:
    (pod.volume / "loop").symlink_to("loop")
    (pod.volume / "dangling").symlink_to("nothing")
    (pod.volume / "file").write_text("x")
    failed_step, why = pod.refused(path)
    assert (step in failed_step, reason in why) == (True, True), (failed_step, why)
    assert str(pod.volume) not in why and "x" * 300 not in why
    assert pod.bound() == []


def test_the_same_request_again_gives_the_same_and_binds_once(pod: Pod) -> None:
    (pod.volume / "a").mkdir()
    assert pod.prepare("a") == pod.prepare("a")
    assert pod.bound() == ["v/c/0"]


def test_another_path_of_the_next_start_takes_the_place_of_the_old(pod: Pod) -> None:
    (pod.volume / "d").mkdir()
    (pod.volume / "f").write_text("f")
    for path in ("d", "f", "d"):
        target = pod.prepare(path)
        assert target.stat().st_ino == (pod.volume / path).stat().st_ino
        assert pod.bound() == ["v/c/0"]


def test_a_release_takes_one_container_and_leaves_the_others(pod: Pod) -> None:
    pod.prepare("a", container="one")
    pod.prepare("a", container="two")
    pod.subpaths.release("u", "one")
    assert pod.bound() == ["v/two/0"]
    pod.subpaths.release("u", "one")
    pod.subpaths.release("u", "two")
    assert (pod.bound(), pod.place.exists(), (pod.volume / "a").is_dir()) == ([], False, True)


def test_what_is_in_use_stays_bound_until_its_last_user_is_gone(pod: Pod) -> None:
    """As in the kubelet: detached, it would hold the volume without being in the mount table."""
    target = pod.prepare("a")
    with (target / "open").open("w"):
        with pytest.raises(OSError, match="busy"):
            pod.subpaths.release("u", "c")
        assert pod.bound() == ["v/c/0"]
    pod.subpaths.release("u", "c")
    assert (pod.bound(), (pod.volume / "a" / "open").exists()) == ([], True)


def test_an_unmount_takes_the_subpaths_of_the_volume_first_and_then_the_pod_can_go(pod: Pod) -> None:
    pod.prepare("a")
    with pytest.raises(OSError, match="mount point"):
        pod.directories.remove("u")
    assert [(found.name, found.on_disk, found.subpaths) for found in pod.calls.find_volumes("u")] == [("v", True, True)]
    pod.calls.perform(UnmountVolume("u", "v"), SetUpInputs(), RemovalProgress())
    pod.calls.perform(RemovePodDirectory("u"), SetUpInputs(), RemovalProgress())
    assert (pod.volume.exists(), pod.directories.pod("u").exists()) == (False, False)


def test_a_host_path_with_a_subpath_is_found_and_unmounted_without_its_content(pod: Pod, tmp_path: Path) -> None:
    host = tmp_path / "host"
    (host / "precious").mkdir(parents=True)
    (host / "precious" / "data").write_text("kept")
    pod.subpaths.prepare("u", "h", "c", 0, str(host), "precious")
    found = {volume.name: (volume.on_disk, volume.subpaths) for volume in pod.calls.find_volumes("u")}
    assert found == {"v": (True, False), "h": (False, True)}
    pod.calls.perform(UnmountVolume("u", "h"), SetUpInputs(), RemovalProgress())
    assert ((host / "precious" / "data").read_text(), pod.place.exists()) == ("kept", False)


def test_a_place_with_content_that_is_not_mounted_is_left_as_it_is(pod: Pod) -> None:
    place = pod.place / "v" / "c"
    (place / "0").mkdir(parents=True)
    (place / "0" / "precious").write_text("kept")
    (place / "1").write_text("kept")
    for number in ("0", "1"):
        with pytest.raises(OSError, match=r"not empty|has content"):
            pod.subpaths.clean("u", "v")
        kept = place / number / "precious" if number == "0" else place / "1"
        assert kept.read_text() == "kept"
        kept.unlink()
        with contextlib.suppress(OSError):
            (place / "0").rmdir()
    pod.subpaths.clean("u", "v")


def test_a_file_of_a_config_map_is_that_of_the_moment(pod: Pod) -> None:
    source = Files(parts=(), default_mode=0o644, size=1 << 20)
    files = pod.config_maps
    root = files.show("u", "cfg", source, {"key": PayloadFile(b"one", 0o644)})
    target = Path(pod.subpaths.prepare("u", "cfg", "c", 0, root, "key"))
    assert target.read_text() == "one"
    files.show("u", "cfg", source, {"key": PayloadFile(b"two", 0o644)})
    assert ((Path(root) / "key").read_text(), target.read_text()) == ("two", "one")
    assert Path(pod.subpaths.prepare("u", "cfg", "c", 0, root, "key")).read_text() == "two"


def test_files_that_are_exchanged_meanwhile_do_not_matter(pod: Pod) -> None:
    source = Files(parts=(), default_mode=0o644, size=1 << 20)
    root = pod.config_maps.show("u", "cfg", source, {"key": PayloadFile(b"0", 0o644)})
    stop = threading.Event()

    def exchange() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            pod.config_maps.show("u", "cfg", source, {"key": PayloadFile(b"%d" % number, 0o644)})
            time.sleep(0.002)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(200):
            assert Path(pod.subpaths.prepare("u", "cfg", "c", 0, root, "key")).read_text().isdigit()
    finally:
        stop.set()
        thread.join()


SWAPPED_SECONDS = 10.0 if os.environ.get("NIGHT") else 1.0  # some thousand tries each second
SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
a, b = sys.argv[1].encode(), sys.argv[2].encode()
while True:
    libc.renameat2(-100, a, -100, b, 2)  # RENAME_EXCHANGE
"""


@pytest.mark.parametrize("path", ["x", "x/inner", "x/new/dir"])
def test_a_container_that_swaps_a_directory_and_a_symlink_never_gets_out(pod: Pod, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "secret").write_text("of the node")
    (pod.volume / "x" / "inner").mkdir(parents=True)
    (pod.volume / "link").symlink_to(outside)
    swapper = subprocess.Popen([sys.executable, "-c", SWAP, str(pod.volume / "x"), str(pod.volume / "link")])
    forbidden = {outside.stat().st_ino, (outside / "inner").stat().st_ino}
    answers = {"bound": 0, "refused": 0}
    try:
        until = time.monotonic() + SWAPPED_SECONDS
        while time.monotonic() < until or not all(answers.values()):
            assert time.monotonic() < until + WAIT_SECONDS, answers
            try:
                target = pod.prepare(path)
            except SubpathError:
                answers["refused"] += 1
                continue
            answers["bound"] += 1
            assert target.stat().st_ino not in forbidden
            assert not (target / "secret").exists()
    finally:
        swapper.kill()
        swapper.wait()
    assert sorted(entry.name for entry in outside.rglob("*")) == ["inner", "secret"]


POINTS = ["opened", "target", "bound", "unmounted"]
KILLED = """
import sys
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.subpaths import Subpaths
subpaths = Subpaths(PodDirectories(sys.argv[1]))
subpaths.prepare("u", "v", "c", 0, sys.argv[2], "a")
subpaths.release("u", "c")
"""


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_is_repaired_by_the_next_request_and_by_the_end(
    pod: Pod, tmp_path: Path, point: str
) -> None:
    order = tmp_path / "crash"
    for ending in ("request", "end"):
        order.write_text(f"volume.subpath.{point}")
        command = [sys.executable, "-c", KILLED, str(pod.directories.pods.parent), str(pod.volume)]
        done = subprocess.run(command, env={**os.environ, "CRASH_AT": f"@{order}"}, cwd=Path.cwd(), check=False)
        assert done.returncode == -signal.SIGKILL
        if ending == "request":
            target = pod.prepare("a")
            assert (pod.bound(), target.stat().st_ino) == (["v/c/0"], (pod.volume / "a").stat().st_ino)
            pod.subpaths.release("u", "c")
            assert not pod.place.exists()
            continue
        bound = point in ("target", "bound", "unmounted")
        assert [found.subpaths for found in pod.calls.find_volumes("u")] == [bound]
    pod.calls.perform(UnmountVolume("u", "v"), SetUpInputs(), RemovalProgress())
    pod.calls.perform(RemovePodDirectory("u"), SetUpInputs(), RemovalProgress())
    assert below(mount_table(), str(tmp_path)) == []


def test_many_containers_at_once_do_not_meet(pod: Pod) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(30):
                pod.calls.subpaths.prepare("u", "v", f"c{number}", 0, str(pod.volume), f"d{number}")
                pod.calls.subpaths.release("u", f"c{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, pod.bound(), pod.place.exists()) == ([], [], False)
