"""Volumes of files after a boot of the machine and after a kill: what is mounted before sources has answered."""

import asyncio
from pathlib import Path

import pytest

from bus.messages.volume import VolumeState
from services.volume.adapters import backing_directory
from tests.service.volume.cluster import Cluster, without_mounts
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The pod `u` shows the ConfigMap `x` in its volume `cfg`, and volume has ended; sources does not answer now."""
    without_mounts(monkeypatch)
    cluster = Cluster(tmp_path)
    await cluster.start()
    cluster.admitted.mark_complete()
    cluster.put("ConfigMap", "x", "1", key="old")
    async with cluster.volume():
        cluster.admit("u", "cfg")
        await cluster.until_mounted("u", "cfg")
    cluster.silent.add("sources")
    cluster.asked.clear()
    return cluster


def reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backing_directory, "boot_id", lambda: "the next boot")


async def until_asked(cluster: Cluster) -> None:
    """Until volume has found the disk, has published what is mounted and requests the ConfigMap."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not cluster.asked:
            await asyncio.sleep(0)
    await cluster.network.settle()


async def answer(cluster: Cluster) -> None:
    """Sources starts again, and answers."""
    cluster.silent.clear()
    cluster.network.kill("sources")
    await cluster.start_sources()


async def test_after_a_kill_the_files_are_mounted_before_anyone_answers(cluster: Cluster) -> None:
    async with cluster.volume():
        await cluster.until_mounted("u", "cfg")
        assert cluster.read("u", "cfg") == {"key": "old"}


@pytest.mark.long
@pytest.mark.parametrize("what", ["changed", "emptied by a power cut"])
async def test_after_a_reboot_the_files_are_mounted_once_they_are_those_of_the_object(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    expected = "new" if what == "changed" else "old"
    if what == "changed":
        cluster.put("ConfigMap", "x", "2", key="new")
    else:
        (cluster.directory("u", "cfg") / "key").resolve().write_text("")
    reboot(monkeypatch)
    seen: list[dict[str, str]] = []
    async with cluster.volume():
        await until_asked(cluster)
        assert cluster.mounted.state["u"].volumes["cfg"].state is VolumeState.PENDING
        await answer(cluster)
        await cluster.until_mounted("u", "cfg")
        seen.append(cluster.read("u", "cfg"))
    cluster.silent.add("sources")
    async with cluster.volume():  # a kill in the new boot
        await cluster.until_mounted("u", "cfg")
        seen.append(cluster.read("u", "cfg"))
    assert seen == [{"key": expected}] * 2


async def test_after_a_reboot_a_deleted_object_is_an_error_of_its_volume(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.delete("ConfigMap", "x")
    reboot(monkeypatch)
    cluster.silent.clear()
    async with cluster.volume():
        await cluster.mounted.until(lambda state: "u" in state and state["u"].volumes["cfg"].state is VolumeState.ERROR)


async def test_files_of_an_earlier_version_are_mounted_once_they_were_set_up_again(cluster: Cluster) -> None:
    """Its markers name no boot."""
    (marker,) = cluster.root.glob("pods/u/plugins/*/*cfg/ready")
    marker.write_text("")
    async with cluster.volume():
        await until_asked(cluster)
        assert cluster.mounted.state["u"].volumes["cfg"].state is VolumeState.PENDING
        await answer(cluster)
        await cluster.until_mounted("u", "cfg")
