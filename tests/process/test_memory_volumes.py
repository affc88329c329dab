"""Memory-backed volumes of volume on real tmpfs mounts, which podsync has resized: sizes, refusals, kills."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import NodeResources
from bus.messages.streams import NODE_RESOURCES
from bus.messages.volume import ResizedMemoryVolumes, ResizeMemoryVolumes
from services.volume.adapters import mounts, root_dir
from services.volume.adapters.mounts import mount_table, mount_tmpfs, resize_tmpfs, unmount
from services.volume.controllers import memory_volume_requests
from tests.service.volume.node import Node, without_device_plugins

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]
MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


def size_of(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def options_of(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Those of the mount, and those of its file system that are no size."""
    (mount,) = [mount for mount in mount_table() if mount.path == str(path)]
    return mount.options, frozenset(option for option in mount.super_options if not option.startswith("size"))


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "tmpfs"
    path.mkdir()
    mount_tmpfs(path, size=4 * MIB)
    yield path
    unmount(path)


def test_a_tmpfs_gets_the_size_in_the_direction_that_is_asked_for_and_keeps_files_and_options(tmpfs: Path) -> None:
    (tmpfs / "file").write_bytes(b"x" * MIB)
    before = options_of(tmpfs)
    assert not resize_tmpfs(tmpfs, 8 * MIB, grow=False) and size_of(tmpfs) == 4 * MIB
    assert resize_tmpfs(tmpfs, 8 * MIB, grow=True) and size_of(tmpfs) == 8 * MIB
    assert not resize_tmpfs(tmpfs, 8 * MIB, grow=True)
    assert not resize_tmpfs(tmpfs, 2 * MIB, grow=True) and size_of(tmpfs) == 8 * MIB
    assert resize_tmpfs(tmpfs, 2 * MIB + 1, grow=False) and size_of(tmpfs) == 2 * MIB + PAGE
    assert not resize_tmpfs(tmpfs, 2 * MIB + 1, grow=False)
    assert options_of(tmpfs) == before
    assert (tmpfs / "file").read_bytes() == b"x" * MIB


def test_a_mount_option_that_an_administrator_added_stays(tmpfs: Path) -> None:
    subprocess.run(["mount", "-o", "remount,noexec,nosuid", str(tmpfs)], check=True)
    assert resize_tmpfs(tmpfs, 8 * MIB, grow=True)
    assert {"noexec", "nosuid"} <= options_of(tmpfs)[0]


def test_less_than_what_is_in_use_is_refused(tmpfs: Path) -> None:
    (tmpfs / "file").write_bytes(b"x" * 2 * MIB)
    with pytest.raises(OSError, match=rf"attempting to set the size \({MIB}\) below current usage \({2 * MIB}\)"):
        resize_tmpfs(tmpfs, MIB, grow=False)
    assert size_of(tmpfs) == 4 * MIB
    assert resize_tmpfs(tmpfs, 2 * MIB, grow=False)


def test_what_is_written_meanwhile_is_told_from_a_size_that_the_kernel_cannot_give(
    tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_mount = mounts._mount

    def written_to_before(source: str, *rest: Any) -> None:
        (tmpfs / "file").write_bytes(b"x" * 2 * MIB)
        real_mount(source, *rest)

    monkeypatch.setattr(mounts, "_mount", written_to_before)
    with pytest.raises(OSError, match=rf"attempting to set the size \({MIB}\) below current usage \({2 * MIB}\)"):
        resize_tmpfs(tmpfs, MIB, grow=False)
    monkeypatch.undo()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=0", "tmpfs", str(tmpfs)], check=True)  # without a limit
    try:
        with pytest.raises(OSError, match=f"the kernel cannot change its size to {MIB}") as refused:
            resize_tmpfs(tmpfs, MIB, grow=True)
        assert refused.value.errno == errno.EINVAL
    finally:
        unmount(tmpfs)


def test_a_path_without_a_tmpfs_is_refused(tmp_path: Path, tmpfs: Path) -> None:
    for path in (tmp_path, tmpfs / "below"):
        path.mkdir(exist_ok=True)
        with pytest.raises(OSError, match="no tmpfs is mounted here"):
            resize_tmpfs(path, MIB, grow=True)
    assert size_of(tmpfs) == 4 * MIB


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(root_dir, "prepare", lambda path: Path(path).mkdir(exist_ok=True))
    without_device_plugins(monkeypatch)
    node = Node(tmp_path)
    memory = {"medium": "Memory", "sizeLimit": "4Mi"}
    node.volumes = [{"name": "fast", "emptyDir": memory}, {"name": "cache", "emptyDir": {}}]
    resources = node.podsync.own(NODE_RESOURCES)
    resources.put("node", NodeResources(capacity={}, allocatable={"memory": "64Mi"}))
    await node.podsync.start()
    node.admit("u", "fast", "cache")
    yield node
    unmount(node.empty_dir("u", "fast"))


async def resized(node: Node, size: int, *, grow: bool, uid: str = "u") -> str:
    request = ResizeMemoryVolumes(uid=uid, sizes={"fast": size, "gone": size}, grow=grow)
    return (await node.podsync.ask("volume", request, ResizedMemoryVolumes, 60)).error


async def mounted(node: Node) -> Path:
    await node.mounted.until(lambda state: "u" in state and all(v.host_path for v in state["u"].volumes.values()))
    return node.empty_dir("u", "fast")


async def test_the_volume_of_a_pod_is_resized_within_the_memory_of_the_node(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.volume():
        path = await mounted(node)
        assert size_of(path) == 4 * MIB
        assert await resized(node, 16 * MIB, grow=True) == "" and size_of(path) == 16 * MIB
        assert await resized(node, 1 << 40, grow=True) == "" and size_of(path) == 64 * MIB
        (path / "file").write_bytes(b"x" * 3 * MIB)
        assert await resized(node, MIB, grow=False) == (
            f'cannot resize volume "fast": attempting to set the size ({MIB}) below current usage ({3 * MIB})'
        )
        assert await resized(node, 8 * MIB, grow=False) == "" and size_of(path) == 8 * MIB
        monkeypatch.setattr(memory_volume_requests, "MAX_WAIT_SECONDS", 0.05)
        assert await resized(node, 8 * MIB, grow=False, uid="other") == 'cannot resize volume "fast": it is not mounted'


_RESIZE = """
from pathlib import Path
import sys
from services.volume.controllers.memory_volume_requests import _resize_tmpfs
_resize_tmpfs(Path(sys.argv[1]), int(sys.argv[2]), True)
"""


@pytest.mark.parametrize("killed", [False, True], ids=["before", "after"])
async def test_a_kill_before_or_after_the_remount_leaves_a_volume_that_is_resized_again(
    node: Node, killed: bool, tmp_path: Path
) -> None:
    async with node.volume():
        path = await mounted(node)
    if killed:
        (tmp_path / "at").write_text("volume.tmpfs.resized")
        point = {**os.environ, "CRASH_AT": f"@{tmp_path}/at"}
        resizing = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _RESIZE, str(path), str(8 * MIB), env=point
        )
        assert await resizing.wait() == -signal.SIGKILL
    assert size_of(path) == (8 if killed else 4) * MIB
    async with node.volume():
        assert await resized(node, 8 * MIB, grow=False) == ""
        assert await resized(node, 8 * MIB, grow=True) == ""
        assert size_of(path) == 8 * MIB
