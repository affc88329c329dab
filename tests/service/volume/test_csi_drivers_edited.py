"""A CSIDriver or PersistentVolume that is deleted, made again or edited takes no mount of a running pod away."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.sources import ChangedObject
from bus.messages.volume import VolumeState
from tests.service.volume.csi_cluster import CSI_DRIVER, DRIVER, CsiCluster
from tests.unit.volume.claims import PV

INLINE: dict[str, Any] = {"driver": DRIVER}
EPHEMERAL = ["Ephemeral"]


def delete_csi_driver(cluster: CsiCluster) -> None:
    del cluster.objects[CSI_DRIVER]
    cluster.changed.put(CSI_DRIVER, ChangedObject(resource_version=""))


async def until_refused(cluster: CsiCluster, uid: str, why: str) -> None:
    """Until the volume of this pod shows that its CSIDriver does not take it."""

    def refused() -> bool:
        found = cluster.mounted.state.get(uid)
        return found is not None and "v" in found.volumes and why in found.volumes["v"].error

    await cluster.until(refused)


async def until_read_again(cluster: CsiCluster, why: str) -> None:
    """Until volume has read the CSIDriver as it is now, by which the inline volume of another pod is refused."""
    cluster.run("probe", inline=INLINE)
    await until_refused(cluster, "probe", why)


def calls_for(cluster: CsiCluster, method: str, uid: str, directory: str = "pv-1") -> int:
    """How often the driver was called for the volume of this pod."""
    target = str(cluster.target(uid, directory))
    return sum(call["target_path"] == target for call in cluster.driver.calls(method))


@pytest.mark.long
async def test_an_inline_volume_stays_published_while_its_csi_driver_is_deleted(cluster: CsiCluster) -> None:
    cluster.csi_driver(volumeLifecycleModes=EPHEMERAL, podInfoOnMount=True)
    async with cluster.volume():
        cluster.run("a", inline=INLINE)
        await cluster.until_mounted("a")
        delete_csi_driver(cluster)
        await until_read_again(cluster, "no CSIDriver object")
        assert (shown := cluster.shown("a")) is not None and shown.state is VolumeState.MOUNTED
        cluster.csi_driver(volumeLifecycleModes=EPHEMERAL, podInfoOnMount=True, fsGroupPolicy="None")
        await cluster.until_mounted("a", "probe")
        assert calls_for(cluster, "NodeUnpublishVolume", "a", "v") == 0
        assert cluster.driver.mounts.is_mounted(cluster.target("a", "v"))
        cluster.run("a", PodState.FINISHED)
        cluster.run("probe", PodState.FINISHED)
        await cluster.until_nothing_is_left()


@pytest.mark.long
async def test_an_inline_volume_stays_published_when_volume_restarts_without_its_csi_driver(
    cluster: CsiCluster,
) -> None:
    cluster.csi_driver(volumeLifecycleModes=EPHEMERAL, podInfoOnMount=True)
    async with cluster.volume():
        cluster.run("a", inline=INLINE)
        await cluster.until_mounted("a")
    delete_csi_driver(cluster)
    async with cluster.volume():
        await until_refused(cluster, "a", "no CSIDriver object")
        await until_read_again(cluster, "no CSIDriver object")
        assert cluster.driver.mounts.is_mounted(cluster.target("a", "v"))
        cluster.csi_driver(volumeLifecycleModes=EPHEMERAL, podInfoOnMount=True)
        await cluster.until_mounted("a")
        assert calls_for(cluster, "NodeUnpublishVolume", "a", "v") == 0
        cluster.run("a", PodState.FINISHED)
        cluster.run("probe", PodState.FINISHED)
        await cluster.until_nothing_is_left()


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_claim_stays_published_when_its_driver_takes_no_such_volumes_any_more(
    cluster: CsiCluster, *, restarts: bool
) -> None:
    cluster.bind()
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        if not restarts:
            cluster.csi_driver(attachRequired=False, volumeLifecycleModes=["Other"])
            await until_read_again(cluster, 'only supports ["Other"]')
            assert (shown := cluster.shown("a")) is not None and shown.state is VolumeState.MOUNTED
    cluster.csi_driver(attachRequired=False, volumeLifecycleModes=["Other"])
    async with cluster.volume():
        await until_refused(cluster, "a", 'only supports ["Other"]')
        await until_read_again(cluster, 'only supports ["Other"]')
        assert cluster.driver.mounts.is_mounted(cluster.target("a"))
        assert cluster.driver.calls("NodeUnpublishVolume", "NodeUnstageVolume") == []
        cluster.run("a", PodState.FINISHED)
        cluster.run("probe", PodState.FINISHED)
        await cluster.until_nothing_is_left()


@pytest.mark.long
async def test_an_edit_of_the_driver_or_the_volume_publishes_no_running_volume_again(cluster: CsiCluster) -> None:
    cluster.bind(volumeAttributes={"size": "1"})
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        cluster.objects[PV]["spec"]["csi"]["volumeAttributes"] = {"size": "2"}
        cluster.changed.put(PV, ChangedObject(resource_version="3"))
        cluster.csi_driver(
            attachRequired=False,
            podInfoOnMount=True,
            fsGroupPolicy="File",
            volumeLifecycleModes=["Persistent", "Other"],
        )
        await until_read_again(cluster, 'only supports ["Persistent Other"]')
        delete_csi_driver(cluster)  # without it, a VolumeAttachment is required
        await until_read_again(cluster, "no CSIDriver object")
        assert calls_for(cluster, "NodePublishVolume", "a") == 1
        assert (shown := cluster.shown("a")) is not None and shown.state is VolumeState.MOUNTED


@pytest.mark.long
async def test_an_edit_that_lets_a_failing_volume_be_mounted_counts(cluster: CsiCluster) -> None:
    cluster.csi_driver(attachRequired=True)
    cluster.bind()
    async with cluster.volume():
        cluster.run("a")
        await cluster.until(lambda: cluster.shown("a"))
        cluster.csi_driver(attachRequired=False)
        await cluster.until_mounted("a")
