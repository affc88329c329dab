"""Paths that hang cost the pods that name them only, and at most a share of the threads for each mount."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import PreparedSubpath, PrepareSubpath, ReleaseSubpaths
from services.volume.adapters import recent_mounts, subpaths
from services.volume.controllers import operation_executor
from services.volume.core.operations.mount_shares import MAX_CALLS_PER_LOCAL_MOUNT, MAX_CALLS_PER_MOUNT
from services.volume.plugins import host_path
from services.volume.plugins.host_path import HostPath
from shared.host.mountinfo import MountPoint
from tests.service.volume.node import Node, mounted, started_node
from tests.support.waits.deadline import WAIT_SECONDS

HUNG = 24  # paths; more than any mount has places for looks at hostPaths


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = await started_node(tmp_path, monkeypatch)
    node.host.mkdir()
    node.admitted.mark_complete()
    return node


class DeadServer:
    """Paths below `/dead` hang until it answers; other looks at hostPaths are real."""

    def __init__(self) -> None:
        self.answers, self.under_way, self.most = threading.Event(), 0, 0
        self._check, self._opened, self._lock = host_path.check_host_path, subpaths._open_subpath, threading.Lock()

    def check(self, source: HostPath) -> str:
        if not source.type or not source.path.startswith("/dead"):
            return self._check(source)
        self.wait()
        return source.path

    def opened(self, root: str, path: str) -> int:
        """The first step of a subPath."""
        if root.startswith("/dead"):
            self.wait()
        return self._opened(root, path)

    def wait(self) -> None:
        """Until it answers."""
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        assert self.answers.wait(WAIT_SECONDS)
        with self._lock:
            self.under_way -= 1


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadServer]:
    dead = DeadServer()
    monkeypatch.setattr(operation_executor, "HOST_PATH_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(host_path, "check_host_path", dead.check)
    monkeypatch.setattr(subpaths, "_open_subpath", dead.opened)
    monkeypatch.setattr(subpaths, "bind", lambda source, target: None)
    monkeypatch.setattr(subpaths, "unmount_all", lambda target: None)
    yield dead
    dead.answers.set()


async def under_way(dead: DeadServer, calls: int) -> None:
    """Wait until so many calls hang: the thread of each begins after the operation."""
    async with asyncio.timeout(WAIT_SECONDS):
        while dead.under_way < calls:
            await asyncio.sleep(0)


@pytest.mark.long
async def test_paths_that_hang_are_named_and_stop_no_other_volume(node: Node, dead: DeadServer) -> None:
    for number in range(HUNG):
        node.volumes.append({"name": f"nfs-{number}", "hostPath": {"path": f"/dead/{number}", "type": "Directory"}})
        node.admit(f"hung-{number:02}", f"nfs-{number}")
    async with node.volume():
        await node.mounted.until(lambda state: sum("hung" in uid for uid in state) == HUNG)
        node.admit("fine", "cache", "logs")
        await node.mounted.until(lambda _: mounted(node, "fine"))
        await node.until_troubles("MountVolume nfs-0 of pod default/web (hung-00): /dead/0 does not answer")
        await under_way(dead, MAX_CALLS_PER_LOCAL_MOUNT)
        assert dead.most == MAX_CALLS_PER_LOCAL_MOUNT, "by its text it is below /"
        await node.mounted.until(lambda state: bool(state["hung-00"].volumes["nfs-0"].error))
        error = node.mounted.state["hung-00"].volumes["nfs-0"].error
        assert error.startswith('MountVolume.SetUp failed for volume "nfs-0" : hostPath type check failed: /dead/0 ')
        dead.answers.set()
        await node.mounted.until(lambda _: all(mounted(node, f"hung-{number:02}") for number in range(HUNG)))
        await node.until_troubles()


@pytest.fixture
def dead_mount(dead: DeadServer, monkeypatch: pytest.MonkeyPatch) -> DeadServer:
    """It is mounted at `/dead`; a call that waits for a place waits longer than the test."""
    table = (MountPoint("/", "ext4", shared=True), MountPoint("/dead", "fuse.sshfs", shared=True))
    monkeypatch.setattr(recent_mounts, "mount_table", lambda: table)
    monkeypatch.setattr(operation_executor, "HOST_PATH_TIMEOUT_SECONDS", 10 * WAIT_SECONDS)
    monkeypatch.setattr(operation_executor, "SUBPATH_TIMEOUT_SECONDS", 10 * WAIT_SECONDS)
    return dead


async def test_paths_that_hang_below_one_mount_stop_no_hostpath_elsewhere(node: Node, dead_mount: DeadServer) -> None:
    for number in range(HUNG):
        node.volumes.append({"name": f"nfs-{number}", "hostPath": {"path": f"/dead/{number}", "type": "Directory"}})
        node.admit(f"hung-{number:02}", f"nfs-{number}")
    async with node.volume():
        await under_way(dead_mount, MAX_CALLS_PER_MOUNT)
        node.admit("fine", "host")
        await node.mounted.until(lambda _: mounted(node, "fine"))
        for number in range(HUNG):
            node.admitted.delete(f"hung-{number:02}")
        node.admit("later", "host")
        await node.mounted.until(lambda _: mounted(node, "later"))
        assert dead_mount.most == MAX_CALLS_PER_MOUNT
        dead_mount.answers.set()


async def test_a_path_below_a_mount_of_which_others_hang_is_an_error_that_names_the_mount(
    node: Node, dead_mount: DeadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_executor, "HOST_PATH_TIMEOUT_SECONDS", 0.05)
    for number in range(MAX_CALLS_PER_MOUNT + 1):
        node.volumes.append({"name": f"nfs-{number}", "hostPath": {"path": f"/dead/{number}", "type": "Directory"}})
        node.admit(f"hung-{number}", f"nfs-{number}")
    async with node.volume():
        state = await node.mounted.until(
            lambda state: "hung-2" in state and bool(state["hung-2"].volumes["nfs-2"].error)
        )
        text = "/dead/2 was not looked at: 2 other paths below /dead do not answer, /dead/0 is one"
        assert state["hung-2"].volumes["nfs-2"].error.endswith(text)


def subpath(node: Node, uid: str, volume: str) -> "asyncio.Task[PreparedSubpath]":
    request = PrepareSubpath(uid=uid, volume=volume, container="c", index=0, path="part")
    return asyncio.create_task(node.podsync.ask("volume", request, PreparedSubpath))


@pytest.mark.long
async def test_subpaths_that_hang_stop_no_subpath_of_another_volume(node: Node, dead: DeadServer) -> None:
    for number in range(HUNG):
        node.volumes.append({"name": f"nfs-{number}", "hostPath": {"path": f"/dead/{number}"}})
        node.admit(f"hung-{number:02}", f"nfs-{number}")
    async with node.volume():
        hung = [subpath(node, f"hung-{number:02}", f"nfs-{number}") for number in range(HUNG)]
        await under_way(dead, MAX_CALLS_PER_LOCAL_MOUNT)
        node.admit("fine", "cache")
        assert (await subpath(node, "fine", "cache")).host_path
        released = await node.podsync.ask("volume", ReleaseSubpaths(uid="fine", container="c"), PreparedSubpath)
        assert not released.error
        assert not (node.directory("fine") / "volume-subpaths").exists()
        dead.answers.set()
        await asyncio.gather(*hung)


async def test_subpaths_that_hang_below_one_mount_stop_no_subpath_of_a_hostpath_elsewhere(
    node: Node, dead_mount: DeadServer
) -> None:
    for number in range(HUNG):
        node.volumes.append({"name": f"nfs-{number}", "hostPath": {"path": f"/dead/{number}"}})
        node.admit(f"hung-{number:02}", f"nfs-{number}")
    node.admit("fine", "host")
    async with node.volume():
        hung = [subpath(node, f"hung-{number:02}", f"nfs-{number}") for number in range(HUNG)]
        await under_way(dead_mount, MAX_CALLS_PER_MOUNT)
        assert (await subpath(node, "fine", "host")).host_path
        assert dead_mount.most == MAX_CALLS_PER_MOUNT
        dead_mount.answers.set()
        await asyncio.gather(*hung)


async def test_many_pods_on_one_path_that_hangs_take_one_thread(node: Node, dead: DeadServer) -> None:
    node.volumes.append({"name": "nfs", "hostPath": {"path": "/dead/share", "type": "Directory"}})
    for number in range(HUNG):
        node.admit(f"hung-{number}", "nfs")
    node.admit("fine", "host")
    async with node.volume():
        await node.mounted.until(
            lambda state: (
                len(state) == HUNG + 1
                and mounted(node, "fine")
                and all(state[f"hung-{number}"].volumes["nfs"].error for number in range(HUNG))
            )
        )
        await under_way(dead, 1)
        assert dead.most == 1
        errors = {node.mounted.state[f"hung-{number}"].volumes["nfs"].error for number in range(HUNG)}
        text = "hostPath type check failed: /dead/share does not answer within 0.05 s"
        assert errors == {f'MountVolume.SetUp failed for volume "nfs" : {text}'}


async def test_a_pod_whose_path_hangs_can_be_removed(node: Node, dead: DeadServer) -> None:
    node.volumes.append({"name": "nfs", "hostPath": {"path": "/dead/share", "type": "Directory"}})
    node.admit("hung", "nfs", "cache")
    async with node.volume():
        await node.mounted.until(lambda state: "hung" in state and node.empty_dir("hung", "cache").is_dir())
        await under_way(dead, 1)
        node.admit("hung", state=PodState.FINISHED)
        await node.until_gone("hung")
        assert dead.under_way == 1
