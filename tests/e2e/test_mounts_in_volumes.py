"""Clean-up never descends into a mount that is in a volume: odd names, file systems that hang or are dead."""

import contextlib
import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.volume.adapters.mounts import bind_to_itself, mount_table
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.payload import SetUpInputs
from services.volume.plugins.empty_dir import EmptyDir, EmptyDirPlugin
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import below
from shared.time.clock import SystemClock
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]

_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[PodDirectories]:
    yield PodDirectories(str(tmp_path / "root"))
    for point in below(mount_table(), str(tmp_path)):
        _libc.umount2(os.fsencode(point), _MNT_DETACH)
    assert below(mount_table(), str(tmp_path)) == []


@contextlib.contextmanager
def fuse(path: Path) -> Iterator[int]:
    """A FUSE mount whose server never answers; yields its descriptor, at whose close the server is gone."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    try:
        if _libc.mount(b"server", os.fsencode(path), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "mount of fuse")
        yield device
    finally:
        _libc.umount2(os.fsencode(path), _MNT_DETACH)
        with contextlib.suppress(OSError):
            os.close(device)


def error_of(call: Callable[[], object]) -> str:
    """The text of the OSError that the call ends with, in time."""
    texts = list[str]()

    def run() -> None:
        try:
            call()
        except OSError as error:
            texts.append(error.strerror or str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), "the call waits for the file system"
    assert texts
    return texts[0]


@pytest.mark.parametrize(
    "name", ["plain", "a b", "a\nb", "a\rb", "a\x0cb", "a\x1cb", "a\x85b", "a\u2028b", "a\udcffb", "a\\b", "ü"]
)
def test_a_mount_of_any_name_stops_the_removal_and_loses_nothing(directories: PodDirectories, name: str) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "cache", EmptyDir(), SetUpInputs()))
    (path / "beside").write_text("kept")
    (path / name).mkdir()
    (path / name / "precious").write_text("kept")
    bind_to_itself(path / name)
    assert "it is a mount point" in error_of(lambda: volumes.tear_down("u", "cache", RemovalProgress()))
    assert error_of(lambda: directories.remove("u")) == "Orphaned pod found, but volumes are not cleaned up"
    assert (path / "beside").read_text() == (path / name / "precious").read_text() == "kept"
    _libc.umount2(os.fsencode(path / name), 0)
    volumes.tear_down("u", "cache", RemovalProgress())
    directories.remove("u")
    assert not directories.pod("u").exists()


@pytest.mark.parametrize("server", ["hangs", "is gone"])
def test_a_fuse_mount_is_neither_entered_nor_waited_for(directories: PodDirectories, server: str) -> None:
    volumes = EmptyDirPlugin(directories, SystemClock())
    path = Path(volumes.set_up("u", "cache", EmptyDir(), SetUpInputs()))
    (path / "remote").mkdir()
    with fuse(path / "remote") as device:
        if server == "is gone":
            os.close(device)
            with pytest.raises(OSError) as gone:
                (path / "remote").stat()
            assert gone.value.errno == errno.ENOTCONN
        assert "it is a mount point" in error_of(lambda: volumes.tear_down("u", "cache", RemovalProgress()))
        assert error_of(lambda: directories.remove("u")) == "Orphaned pod found, but volumes are not cleaned up"
        assert volumes.reconstruct("u")
    volumes.tear_down("u", "cache", RemovalProgress())
    directories.remove("u")
    assert not directories.pod("u").exists()
