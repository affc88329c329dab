"""Attachable volumes on the in-memory bus: nothing is mounted before the Node reports it in use and attached, and
nothing leaves volumesInUse while it is mounted."""

from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from tests.fakes.disk_plugin import WITH_DISKS
from tests.service.volume.attach_stage import Stage
from tests.service.volume.node import started_node

DISK = "kubernetes.io/disk/data"


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    node = await started_node(tmp_path, monkeypatch)
    node.plugins = WITH_DISKS
    node.volumes.append({"name": "v", "disk": {"name": "data", "attachable": True}})
    (node.root / "disks" / "data").mkdir(parents=True)
    node.admitted.mark_complete()
    stage = Stage(node)
    await stage.start()
    return stage


async def test_an_attachable_volume_is_reported_then_attached_then_mounted(stage: Stage) -> None:
    stage.node.admit("a", "v")
    stage.node.admit("b", "cache")
    async with stage.node.volume():
        generation = await stage.until_in_use(DISK)
        stage.attached("2", DISK)
        await stage.node.mounted.until(lambda state: "b" in state)  # a turn has passed
        assert not stage.is_mounted
        stage.report(generation, "3", DISK)
        stage.node.admit("c", "cache")
        await stage.node.mounted.until(lambda state: "c" in state)
        assert not stage.is_mounted
        stage.attached("3", DISK)
        await stage.until_mounted("a")


async def test_a_volume_leaves_volumes_in_use_after_its_device_is_unmounted(stage: Stage) -> None:
    stage.node.admit("a", "v")
    async with stage.node.volume():
        stage.report(await stage.until_in_use(DISK), "2", DISK)
        stage.attached("2", DISK)
        await stage.until_mounted("a")
        stage.node.admit("a", state=PodState.FINISHED)
        await stage.until_in_use()
        assert not stage.is_mounted


@pytest.mark.long
async def test_a_restart_reports_what_is_mounted_and_mounts_after_the_next_report(stage: Stage) -> None:
    stage.node.admit("a", "v")
    async with stage.node.volume():
        earlier = await stage.until_in_use(DISK)
        stage.report(earlier, "2", DISK)
        stage.attached("2", DISK)
        await stage.until_mounted("a")
    stage.node.admit("a", state=PodState.FINISHED)
    stage.node.admit("b", "v")
    async with stage.node.volume():
        await stage.until_removed("a")
        state = await stage.in_use.until(
            lambda state: "node" in state and state["node"].volumes == (DISK,) and state["node"].generation != earlier
        )
        assert stage.is_mounted
        stage.report(state["node"].generation, "2", DISK)
        await stage.until_mounted("b")
    stage.node.admit("b", state=PodState.FINISHED)
    async with stage.node.volume():
        await stage.until_in_use()
        assert not stage.is_mounted


async def test_a_node_that_should_attach_by_itself_refuses(stage: Stage) -> None:
    stage.node.controller_attach_detach = False
    stage.node.admit("a", "v")
    async with stage.node.volume():
        text = 'AttachVolume.Attach failed for volume "v" : attaching volumes from the kubelet is not supported'
        state = await stage.node.events.until(lambda events: any(event.message == text for event in events.values()))
        assert {event.reason for event in state.values()} == {"FailedAttachVolume"}
        assert not stage.is_mounted
