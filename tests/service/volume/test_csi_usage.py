"""How full CSI volumes are, as volume answers pleg."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bus.messages.usage import FilesystemUsage, VolumeUsage
from bus.messages.volume import FoundVolumeUsage, GetVolumeUsage
from services.volume.controllers import volume_usage
from shared.model.frozen_copy import replace
from shared.plugin_grpc import csi_pb2
from tests.fakes.csi_driver import STAGE, STATS
from tests.service.volume.csi_cluster import CsiCluster, running_csi_cluster
from tests.support.waits.deadline import WAIT_SECONDS

FIGURES = FilesystemUsage(time=0, available=600, capacity=1000, used=400, inodes_free=6, inodes=10, inodes_used=4)


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    async with running_csi_cluster(monkeypatch) as cluster:
        cluster.bind()
        yield cluster


async def found(cluster: CsiCluster, uid: str = "a") -> tuple[VolumeUsage, ...]:
    """What volume answers, without the time of the reading."""
    answer = await cluster.podsync.ask("volume", GetVolumeUsage(uid=uid), FoundVolumeUsage, 60)
    return tuple(replace(each, filesystem=replace(each.filesystem, time=0)) for each in answer.volumes)


@pytest.mark.long
@pytest.mark.parametrize("block", [False, True])
async def test_a_volume_has_the_figures_of_its_driver_under_the_name_of_its_claim(
    cluster: CsiCluster, block: bool
) -> None:
    cluster.bind(block=block)
    async with cluster.volume():
        assert await found(cluster) == ()
        cluster.run("a", block=block)
        await cluster.until_mounted("a")
        assert await found(cluster) == (VolumeUsage(name="v", filesystem=FIGURES, claim="data"),)
        (call,) = cluster.driver.calls("NodeGetVolumeStats")
        published = cluster.driver.calls("NodePublishVolume")[-1]
        assert call["volume_path"] == published["target_path"]
        assert call["staging_target_path"] == published["staging_target_path"]


async def test_a_driver_without_statistics_is_not_asked_for_them(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = (STAGE,)
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        assert await found(cluster) == ()
        assert cluster.driver.calls("NodeGetVolumeStats") == []


async def test_a_driver_that_fails_or_hangs_leaves_the_last_figures(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_usage, "MAX_WAIT_SECONDS", 0.2)
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")

        async def shown() -> bool:
            return [each.filesystem for each in await found(cluster)] == [FIGURES]

        async with asyncio.timeout(WAIT_SECONDS):
            while not await shown():  # the first reading may take longer than 0.2 s
                await asyncio.sleep(0.01)
        for fault in ("INTERNAL", "hang"):
            cluster.driver.fault("NodeGetVolumeStats", fault)
            assert await shown()
        cluster.run("b")
        await cluster.until_mounted("b")  # the hung call delays no other
        cluster.driver.stop()


async def test_a_damaged_volume_is_an_event_and_a_figure_with_the_gate(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = (STAGE, STATS, "VOLUME_CONDITION")
    cluster.driver.condition = csi_pb2.VolumeCondition(abnormal=False, message="fine")

    def texts() -> list[str]:
        found = [each for each in cluster.events.state.values() if each.reason == "VolumeConditionAbnormal"]
        assert all((each.type, each.uid) == ("Warning", "a") for each in found)
        return [each.message for each in found]

    async with cluster.volume(gates={"CSIVolumeHealth": True}, release="1.36"):
        cluster.run("a")
        await cluster.until_mounted("a")
        assert [each.abnormal for each in await found(cluster)] == [False]
        cluster.driver.condition = csi_pb2.VolumeCondition(abnormal=True, message="2 bad blocks " + "x" * 5000)
        for _ in range(3):  # one event, however often it is read
            assert [each.abnormal for each in await found(cluster)] == [True]
        await cluster.until(texts)
        assert [text[:24] for text in texts()] == ["Volume v: 2 bad blocks x"] and len(texts()[0]) < 1100
    async with cluster.volume():
        async with asyncio.timeout(WAIT_SECONDS):
            while not (shown := await found(cluster)):
                await asyncio.sleep(0.01)
        assert [each.abnormal for each in shown] == [None]


@pytest.mark.long
async def test_a_condition_counts_only_from_a_driver_that_reports_conditions(cluster: CsiCluster) -> None:
    cluster.driver.condition = csi_pb2.VolumeCondition(abnormal=True, message="bad")
    async with cluster.volume(gates={"CSIVolumeHealth": True}, release="1.36"):
        cluster.run("a")
        await cluster.until_mounted("a")
        assert [each.abnormal for each in await found(cluster)] == [None]
