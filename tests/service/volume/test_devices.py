"""Volumes that pods share, on the in-memory bus: one device for two pods, and a process that is killed on its way."""

import asyncio
import threading
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from services.volume.controllers import operation_executor
from tests.fakes.disk_plugin import WITH_DISKS, DiskPlugin
from tests.service.volume.node import Node, mounted, started_node
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = await started_node(tmp_path, monkeypatch)
    node.plugins = WITH_DISKS
    node.volumes.append({"name": "v", "disk": {"name": "data", "bytes": 100}})
    (node.root / "disks" / "data").mkdir(parents=True)
    node.admitted.mark_complete()
    return node


def log(node: Node) -> list[str]:
    """What the plugin has done, of all processes."""
    path = node.root / "log"
    return path.read_text().splitlines() if path.exists() else []


async def until_logged(node: Node, line: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while line not in log(node):
            await asyncio.sleep(0)


async def test_a_device_is_mounted_before_the_first_pod_and_unmounted_after_the_last(node: Node) -> None:
    node.admit("a", "v")
    node.admit("b", "v", "cache")
    async with node.volume():
        await node.mounted.until(lambda _: mounted(node, "a") and mounted(node, "b"))
        assert sorted(node.mounted.history) == ["put a", "put b"]
        node.admit("a", state=PodState.FINISHED)
        await node.until_gone("a")
        assert "unmount device data" not in log(node)
        node.admit("b", state=PodState.FINISHED)
        await until_logged(node, "unmount device data")
    mounts = {"mount v of a", "mount v of b"}
    assert (log(node)[0], set(log(node)[1:3])) == ("mount device data", mounts)
    assert log(node)[3:] == ["unmount v of a", "unmount v of b", "unmount device data"]
    assert list((node.root / "plugins" / "kubernetes.io" / "disk").iterdir()) == []


@pytest.mark.long
async def test_a_device_that_cannot_be_mounted_is_an_event_of_its_pod(node: Node) -> None:
    (node.root / "disks" / "data").rmdir()
    node.admit("a", "v")
    async with node.volume():
        state = await node.mounted.until(lambda state: "a" in state and bool(state["a"].volumes["v"].error))
        error = state["a"].volumes["v"].error
        assert error.startswith('MountVolume.MountDevice failed for volume "v" : ')
        await node.events.until(lambda events: any(event.message == error for event in events.values()))
        (node.root / "disks" / "data").mkdir()
        await node.mounted.until(lambda _: mounted(node, "a"))


@pytest.mark.long
async def test_devices_of_a_driver_that_hangs_stop_no_device_of_another(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, begun, unmount = threading.Event(), list[str](), DiskPlugin.unmount_device

    def hanging(plugin: DiskPlugin, volume_name: str) -> None:
        if volume_name.startswith("slow^"):
            begun.append(volume_name)
            assert answers.wait(WAIT_SECONDS)
        unmount(plugin, volume_name)

    monkeypatch.setattr(DiskPlugin, "unmount_device", hanging)
    disks = ["fine^0", *(f"slow^{number}" for number in range(operation_executor.MAX_CALLS_PER_DRIVER + 1))]
    for disk in disks:
        (node.root / "disks" / disk).mkdir()
        node.volumes.append({"name": disk, "disk": {"name": disk}})
        node.admit(disk, disk)
    async with node.volume():
        await node.mounted.until(lambda _: all(mounted(node, disk) for disk in disks))
        for disk in disks[1:]:
            node.admit(disk, state=PodState.FINISHED)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(begun) < operation_executor.MAX_CALLS_PER_DRIVER:
                await asyncio.sleep(0.01)
        node.admit(disks[0], state=PodState.FINISHED)
        await until_logged(node, "unmount device fine^0")
        answers.set()
        for disk in disks:
            await until_logged(node, f"unmount device {disk}")


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "point",
    [
        "volume.calling.MountDevice",
        "volume.acted.MountDevice",
        "volume.calling.UnmountDevice",
        "volume.acted.UnmountDevice",
        "volume.calling.ExpandVolume",
        "volume.acted.ExpandVolume",
    ],
)
async def test_a_process_killed_beside_a_call_for_a_device_leaves_its_work_to_the_next(
    node: Node, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    reached = asyncio.Event()

    def end_there(name: str) -> None:
        if name == point:
            reached.set()
            raise asyncio.CancelledError

    async def through(uid: str) -> None:
        node.admit(uid, "v")
        await node.mounted.until(lambda _: mounted(node, uid))
        if "Expand" in point:
            node.volumes[-1] = {"name": "v", "disk": {"name": "data", "bytes": 200}}
            node.admit(uid, "v")
            async with asyncio.timeout(WAIT_SECONDS):
                while (node.root / "disks" / "data.bytes").read_text() != "200":
                    await asyncio.sleep(0)
        node.admit(uid, state=PodState.FINISHED)
        await until_logged(node, "unmount device data")

    with monkeypatch.context() as killed:
        killed.setattr(operation_executor, "crash_point", end_there)
        async with node.volume():
            going = asyncio.create_task(through("a"))
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
    async with node.volume():
        await going
        await node.until_gone("a")
        assert list((node.root / "plugins" / "kubernetes.io" / "disk").iterdir()) == []
    assert (node.root / "disks" / "data").is_dir()
