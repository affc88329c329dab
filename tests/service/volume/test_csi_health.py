"""The health of CSI volumes as drivers of CSI 1.13 report it, with the feature gate and as of Kubernetes 1.37."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from bus.messages.volume import FoundVolumeUsage, GetVolumeUsage, VolumeHealth
from services.volume.controllers import volume_usage
from shared.plugin_grpc import csi_pb2
from tests.fakes.csi_driver import STAGE, STATS
from tests.service.volume.csi_cluster import CsiCluster, running_csi_cluster
from tests.support.waits.deadline import WAIT_SECONDS

GATE = {"CSIVolumeHealth": True}
HEALTH = "GET_VOLUME_HEALTH"
LOST = VolumeHealth(status="DataLoss", reason="BadBlocks", message="2 blocks")
SLOW = VolumeHealth(status="Degraded", reason="HighLatency")


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    async with running_csi_cluster(monkeypatch) as cluster:
        cluster.driver.capabilities = (STAGE, STATS, HEALTH)
        cluster.bind()
        yield cluster


async def ask(cluster: CsiCluster) -> FoundVolumeUsage:
    """As pleg does each minute."""
    return await cluster.podsync.ask("volume", GetVolumeUsage(uid="a"), FoundVolumeUsage, 60)


def health(cluster: CsiCluster) -> tuple[VolumeHealth, ...] | None:
    """What podsync follows."""
    return cluster.mounted.state["a"].volumes["v"].health


async def until(cluster: CsiCluster, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await ask(cluster)
            await asyncio.sleep(0.01)


async def test_adverse_conditions_are_published_as_the_driver_reports_them_until_it_reports_none(
    cluster: CsiCluster,
) -> None:
    async with cluster.volume(gates=GATE, release="1.37"):
        cluster.run("a")
        await cluster.until_mounted("a")
        await ask(cluster)
        assert health(cluster) == ()
        cluster.driver.health = [
            (csi_pb2.DEGRADED, "HighLatency", ""),
            (csi_pb2.DATA_LOSS, "BadBlocks", "2 blocks"),
            (csi_pb2.DATA_LOSS, "BadBlocks", "2 blocks"),  # a driver may not
            (csi_pb2.INACCESSIBLE, "", "without a reason"),
            (9, "OfALaterVersion", ""),
        ]
        await until(cluster, lambda: health(cluster) == (LOST, SLOW))
        (call, *_) = cluster.driver.calls("NodeGetVolumeHealth")
        published = cluster.driver.calls("NodePublishVolume")[-1]
        assert call["volume_publish_path"] == published["target_path"]
        assert call["staging_target_path"] == published["staging_target_path"]
        cluster.driver.health = []
        await until(cluster, lambda: health(cluster) == ())


@pytest.mark.long
async def test_no_condition_is_longer_or_more_than_the_api_server_takes(cluster: CsiCluster) -> None:
    """It would refuse the whole status of the pod. Which are left out does not depend on the driver's order."""
    reported = [(csi_pb2.DEGRADED, f"R{n:02}", "") for n in range(20)]
    async with cluster.volume(gates=GATE, release="1.37"):
        cluster.run("a")
        await cluster.until_mounted("a")
        cluster.driver.health = [*reversed(reported), (csi_pb2.DATA_LOSS, "\N{EURO SIGN}" * 200, "\N{EURO SIGN}" * 400)]
        await until(cluster, lambda: health(cluster))
        lost, *slow = health(cluster) or ()
        assert (lost.reason, lost.message) == ("\N{EURO SIGN}" * 85, "\N{EURO SIGN}" * 341)  # of 256 and 1024 bytes
        assert [each.reason for each in slow] == [f"R{n:02}" for n in range(15)]


async def test_a_failure_is_no_recovery_and_costs_no_figures(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_usage, "MAX_WAIT_SECONDS", WAIT_SECONDS)
    cluster.driver.health = [(csi_pb2.DEGRADED, "HighLatency", "")]
    async with cluster.volume(gates=GATE, release="1.37"):
        cluster.run("a")
        await cluster.until_mounted("a")
        cluster.driver.fault("NodeGetVolumeHealth", "INTERNAL")
        found = await ask(cluster)
        assert [each.filesystem.used for each in found.volumes] == [400]
        await until(cluster, lambda: health(cluster) == (SLOW,))
        cluster.driver.health = []
        cluster.driver.fault("NodeGetVolumeHealth", "INTERNAL")
        await ask(cluster)
        assert health(cluster) == (SLOW,)
        await until(cluster, lambda: health(cluster) == ())  # the call that failed was the only one


@pytest.mark.long
async def test_a_driver_without_figures_reports_health(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = (STAGE, HEALTH)
    cluster.driver.health = [(csi_pb2.DEGRADED, "HighLatency", "")]
    async with cluster.volume(gates=GATE, release="1.37"):
        cluster.run("a")
        await cluster.until_mounted("a")
        await until(cluster, lambda: health(cluster) == (SLOW,))
        assert (await ask(cluster)).volumes == ()


@pytest.mark.long
async def test_after_a_restart_of_volume_the_health_is_read_again(cluster: CsiCluster) -> None:
    cluster.driver.health = [(csi_pb2.DEGRADED, "HighLatency", "")]
    for _ in range(2):
        async with cluster.volume(gates=GATE, release="1.37"):
            cluster.run("a")
            await cluster.until_mounted("a")
            await cluster.until(lambda: health(cluster) is None)  # until it is read: what podsync knows stays
            await until(cluster, lambda: health(cluster) == (SLOW,))


async def test_a_driver_without_the_capability_reports_that_there_is_no_adverse_condition(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = (STAGE, STATS)
    async with cluster.volume(gates=GATE, release="1.37"):
        cluster.run("a")
        await cluster.until_mounted("a")
        assert health(cluster) is None
        await until(cluster, lambda: health(cluster) == ())


@pytest.mark.long
@pytest.mark.parametrize(
    ("gates", "release", "capability"),
    [({}, "1.37", HEALTH), (GATE, "1.36", HEALTH), (GATE, "1.37", "VOLUME_CONDITION")],
    ids=["gate off", "1.36", "older driver"],
)
async def test_each_release_asks_by_its_own_capability_and_with_the_gate_alone(
    cluster: CsiCluster, gates: dict[str, bool], release: str, capability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_usage, "MAX_WAIT_SECONDS", WAIT_SECONDS)
    cluster.driver.capabilities = (STAGE, STATS, capability)
    cluster.driver.health = [(csi_pb2.DEGRADED, "HighLatency", "")]
    cluster.driver.condition = csi_pb2.VolumeCondition(abnormal=True, message="bad")
    async with cluster.volume(gates=gates, release=release):
        cluster.run("a")
        await cluster.until_mounted("a")
        (found,) = (await ask(cluster)).volumes
        assert (found.abnormal, health(cluster)) == (None, ())
        assert cluster.driver.calls("NodeGetVolumeHealth") == []
        assert not [each for each in cluster.events.state.values() if each.reason == "VolumeConditionAbnormal"]
