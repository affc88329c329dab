"""Block volumes of CSI drivers, with a driver that plays its mounts: calls, records and what is left."""

import json

import pytest

from bus.messages.podsync import PodState
from services.volume.core.specs.csi_volume import attachment_name
from tests.service.volume.csi_cluster import DRIVER, CsiCluster


@pytest.mark.long
async def test_a_block_volume_is_staged_once_published_for_each_pod_and_taken_away_in_reverse(
    cluster: CsiCluster,
) -> None:
    cluster.csi_driver(attachRequired=False, tokenRequests=[{"audience": "vault"}], podInfoOnMount=True)
    cluster.bind(block=True, fsType="ext4")
    folder = cluster.root / "plugins" / "kubernetes.io" / "csi" / "volumeDevices"
    async with cluster.volume():
        cluster.run("a", block=True, group=7)
        cluster.run("b", block=True)
        await cluster.until_mounted("a", "b")
        (staged,) = cluster.driver.calls("NodeStageVolume")
        assert staged["volume_capability"] == {"block": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
        assert staged["staging_target_path"] == str(folder / "staging" / "pv-1")
        published = {call["target_path"]: call for call in cluster.driver.calls("NodePublishVolume")}
        assert published.keys() == {str(folder / "publish" / "pv-1" / uid) for uid in "ab"}
        call = published[str(folder / "publish" / "pv-1" / "a")]
        assert call["staging_target_path"] == staged["staging_target_path"]
        assert "block" in call["volume_capability"]
        assert call["volume_context"]["csi.storage.k8s.io/pod.uid"] == "a"
        assert not any("token" in key for key in call["volume_context"])
        assert json.loads((folder / "pv-1" / "data" / "vol_data.json").read_text()) == {
            "specVolID": "pv-1",
            "volumeHandle": "data",
            "driverName": DRIVER,
            "nodeName": "n",
            "attachmentID": attachment_name("data", DRIVER, "n"),
        }
        shown = cluster.shown("a")
        assert shown is not None and shown.block
        assert shown.host_path == str(cluster.block_link("a"))
        assert str(cluster.block_link("a").readlink()) == call["target_path"]
        cluster.run("a", PodState.FINISHED, block=True)
        await cluster.until(lambda: "a" not in cluster.mounted.state)
        assert cluster.driver.calls("NodeUnstageVolume") == []
        cluster.run("b", PodState.FINISHED, block=True)
        await cluster.until_nothing_is_left()
        assert len(cluster.driver.calls("NodeUnstageVolume")) == 1


async def test_a_driver_without_staging_gets_the_staging_path_of_a_block_volume_all_the_same(
    cluster: CsiCluster,
) -> None:
    cluster.driver.capabilities = ()
    cluster.bind(block=True)
    async with cluster.volume():
        cluster.run("a", block=True)
        await cluster.until_mounted("a")
        assert cluster.driver.calls("NodeStageVolume") == []
        (call,) = cluster.driver.calls("NodePublishVolume")
        assert call["staging_target_path"].endswith("/volumeDevices/staging/pv-1")
        cluster.run("a", PodState.FINISHED, block=True)
        await cluster.until_nothing_is_left()
        assert cluster.driver.calls("NodeUnstageVolume") == []


async def test_a_final_error_of_the_driver_is_an_event_of_the_block_volume_and_leaves_nothing(
    cluster: CsiCluster,
) -> None:
    cluster.bind(block=True)
    cluster.driver.fault("NodePublishVolume", "INVALID_ARGUMENT", times=1000)
    async with cluster.volume():
        cluster.run("a", block=True)
        error = await cluster.until_error("a")
        assert error.startswith('MapVolume.MapPodDevice failed for volume "pv-1" : rpc error: code = InvalidArgument')
        await cluster.events.until(lambda events: any(e.reason == "FailedMapVolume" for e in events.values()))
        assert not cluster.block_link("a").is_symlink()
        cluster.run("a", PodState.FINISHED, block=True)
        await cluster.until_nothing_is_left()
        assert cluster.driver.calls("NodeUnpublishVolume") == []


async def test_a_record_of_a_block_volume_that_is_broken_is_an_error_that_names_it(cluster: CsiCluster) -> None:
    cluster.bind(block=True)
    async with cluster.volume():
        cluster.run("a", block=True)
        await cluster.until_mounted("a")
    record = cluster.root / "plugins/kubernetes.io/csi/volumeDevices/pv-1/data/vol_data.json"
    content = record.read_text()
    cluster.run("a", PodState.FINISHED, block=True)
    for broken, why in ((content[:20], "it is no JSON"), (None, "it does not exist")):
        record.unlink() if broken is None else record.write_text(broken)
        async with cluster.volume():
            expected = f"{record} cannot be read: {why}; unmount"

            def shows(text: str = expected) -> bool:
                return (v := cluster.shown("a")) is not None and text in v.error

            await cluster.until(shows)
            assert len(cluster.driver.mounts.table()) == 1
            assert cluster.driver.calls("NodeUnpublishVolume", "NodeUnstageVolume") == []
    record.write_text(content)
    async with cluster.volume():
        await cluster.until_nothing_is_left()
