"""CSI volumes with a driver that plays its mounts: what it is called with, and what its errors lead to."""

import json
import os

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.volume.controllers import reconciliation
from services.volume.core import reconciler
from services.volume.core.specs.csi_volume import attachment_name
from tests.fakes.csi_driver import MOUNT_GROUP, STAGE, CsiDriver
from tests.service.volume.csi_cluster import DRIVER, CsiCluster


@pytest.mark.long
async def test_a_claim_is_staged_once_published_for_each_pod_and_taken_away_in_reverse(cluster: CsiCluster) -> None:
    cluster.bind(fsType="ext4", volumeAttributes={"size": "1"})
    async with cluster.volume():
        cluster.run("a")
        cluster.run("b")
        await cluster.until_mounted("a", "b")
        staged = cluster.driver.calls("NodeStageVolume")
        assert len(staged) == 1
        capability = {"mount": {"fs_type": "ext4"}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
        assert staged[0]["volume_capability"] == capability
        assert staged[0]["volume_context"] == {"size": "1"}
        path = staged[0]["staging_target_path"]
        assert path.startswith(f"{cluster.root}/plugins/kubernetes.io/csi/{DRIVER}/") and path.endswith("/globalmount")
        published = {call["target_path"]: call for call in cluster.driver.calls("NodePublishVolume")}
        assert published.keys() == {str(cluster.target("a")), str(cluster.target("b"))}
        assert all(call["staging_target_path"] == path for call in published.values())
        record = json.loads((cluster.target("a").parent / "vol_data.json").read_text())
        assert record == {
            "specVolID": "pv-1",
            "volumeHandle": "data",
            "driverName": DRIVER,
            "nodeName": "n",
            "volumeLifecycleMode": "Persistent",
            "attachmentID": attachment_name("data", DRIVER, "n"),
        }
        cluster.run("a", PodState.FINISHED)
        await cluster.until(lambda: str(cluster.target("a")) not in cluster.driver.mounts.table())
        assert cluster.driver.calls("NodeUnstageVolume") == []
        cluster.run("b", PodState.FINISHED)
        await cluster.until_nothing_is_left()
        assert len(cluster.driver.calls("NodeUnstageVolume")) == 1


@pytest.mark.long
async def test_a_driver_without_staging_is_asked_to_publish_alone(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = ()
    cluster.bind()
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        assert cluster.driver.calls("NodeStageVolume") == []
        assert "staging_target_path" not in cluster.driver.calls("NodePublishVolume")[0]
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()


@pytest.mark.long
async def test_an_inline_volume_needs_a_csi_driver_that_takes_it(cluster: CsiCluster) -> None:
    inline = {"driver": DRIVER, "volumeAttributes": {"k": "v"}, "readOnly": True}
    async with cluster.volume():
        cluster.run("a", inline=inline)
        assert (await cluster.until_error("a")).endswith(
            f'volume mode "Ephemeral" not supported by driver {DRIVER} (only supports ["Persistent"])'
        )
        cluster.csi_driver(volumeLifecycleModes=["Ephemeral"], podInfoOnMount=True)
        await cluster.until_mounted("a")
        (call,) = cluster.driver.calls("NodePublishVolume")
        assert call["volume_context"] == {
            "k": "v",
            "csi.storage.k8s.io/ephemeral": "true",
            "csi.storage.k8s.io/pod.name": "web-a",
            "csi.storage.k8s.io/pod.namespace": "shop",
            "csi.storage.k8s.io/pod.uid": "a",
            "csi.storage.k8s.io/serviceAccount.name": "builder",
        }
        assert call["target_path"] == str(cluster.target("a", "v")) and call["readonly"] is True
        assert call["volume_id"].startswith("csi-") and len(call["volume_id"]) == 68
        assert cluster.driver.calls("NodeStageVolume") == []
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()


async def test_tokens_are_passed_and_a_driver_that_requires_it_is_called_again(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciliation, "TURN_SECONDS", 0.1)
    cluster.csi_driver(attachRequired=False, tokenRequests=[{"audience": "vault"}], requiresRepublish=True)
    cluster.bind()
    async with cluster.volume(sync_frequency=0.2):
        cluster.run("a")
        await cluster.until(lambda: len(cluster.driver.calls("NodePublishVolume")) > 2)
        context = cluster.driver.calls("NodePublishVolume")[-1]["volume_context"]
        tokens = json.loads(context["csi.storage.k8s.io/serviceAccount.tokens"])
        assert tokens == {"vault": {"token": "jwt-1", "expirationTimestamp": "2100-01-01T00:00:00Z"}}
        cluster.driver.fault("NodePublishVolume", "INTERNAL", times=3)  # a failed repetition takes nothing away
        count = len(cluster.driver.calls("NodePublishVolume"))
        await cluster.until(lambda: len(cluster.driver.calls("NodePublishVolume")) > count + 2)
        assert (shown := cluster.shown("a")) is not None and shown.state is VolumeState.MOUNTED
        assert cluster.driver.mounts.is_mounted(cluster.target("a"))


async def test_secrets_are_passed_to_stage_and_publish(cluster: CsiCluster) -> None:
    cluster.objects["VolumeSecret/shop/stage"] = {"metadata": {}, "data": {"user": "YQ=="}}
    cluster.bind(
        nodeStageSecretRef={"name": "stage", "namespace": "shop"},
        nodePublishSecretRef={"name": "missing", "namespace": "shop"},
    )
    async with cluster.volume():
        cluster.run("a")
        assert 'fetching NodePublishSecretRef shop/missing failed: volumesecret "missing"' in (
            await cluster.until_error("a")
        )
        assert cluster.driver.calls("NodeStageVolume")[0]["secrets"] == {"user": "a"}
        cluster.objects["VolumeSecret/shop/missing"] = {"metadata": {}, "data": {"user": "Yg=="}}
        await cluster.until_mounted("a")
        assert cluster.driver.calls("NodePublishVolume")[-1]["secrets"] == {"user": "b"}


@pytest.mark.long
async def test_a_driver_that_mounts_for_a_group_gets_the_fs_group(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = (STAGE, MOUNT_GROUP)
    cluster.bind(fsType="ext4")
    async with cluster.volume():
        cluster.run("a", group=os.getegid())
        await cluster.until_mounted("a")
        for call in cluster.driver.calls("NodeStageVolume", "NodePublishVolume"):
            assert call["volume_capability"]["mount"]["volume_mount_group"] == str(os.getegid())
        assert cluster.target("a").stat().st_mode & 0o2770 != 0o2770


async def test_the_fs_group_is_applied_where_the_policy_asks_for_it(cluster: CsiCluster) -> None:
    cluster.csi_driver(attachRequired=False, fsGroupPolicy="File")
    cluster.bind()
    async with cluster.volume():
        cluster.run("a", group=os.getegid())
        await cluster.until_mounted("a")
        assert cluster.target("a").stat().st_mode & 0o2770 == 0o2770


@pytest.mark.long
async def test_a_volume_waits_for_its_driver_and_goes_on_when_it_is_registered(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.bind()
    cluster.driver.remove()
    async with cluster.volume():
        monkeypatch.setattr(reconciler, "QUIET_SECONDS", 0.5)
        cluster.run("a")
        assert await cluster.until_error("a") == (
            'MountVolume.MountDevice failed for volume "pv-1" : kubernetes.io/csi: attacher.MountDevice failed to '
            f"create newCsiDriverClient: driver name {DRIVER} not found in the list of registered CSI drivers"
        )
        cluster.driver = cluster.new_driver()
        cluster.driver.start()
        await cluster.until_mounted("a")


@pytest.mark.long
async def test_an_error_of_the_driver_is_shown_and_a_final_one_leaves_nothing(cluster: CsiCluster) -> None:
    cluster.bind()
    cluster.driver.fault("NodePublishVolume", "INVALID_ARGUMENT", times=1000)
    async with cluster.volume():
        cluster.run("a")
        assert await cluster.until_error("a") == (
            'MountVolume.SetUp failed for volume "pv-1" : rpc error: code = InvalidArgument desc = NodePublishVolume '
            "fails on request"
        )
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()
        assert cluster.driver.calls("NodeUnpublishVolume") == []


@pytest.mark.long
async def test_the_calls_of_a_driver_are_counted_with_their_codes(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = (STAGE,)
    cluster.bind()
    cluster.driver.fault("NodePublishVolume", "UNAVAILABLE")
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        found = next(series for family, series in cluster.metrics.collect() if family.name == "csi_operations_seconds")
        calls = {labels: sum(values[:-1]) for labels, values in found.items()}
    for method, code in (("NodeStageVolume", "OK"), ("NodePublishVolume", "Unavailable"), ("NodePublishVolume", "OK")):
        assert calls[DRIVER, f"/csi.v1.Node/{method}", code, "false"] == 1.0
    assert {method for _, method, _, _ in calls} == {
        f"/csi.v1.Node/{method}" for method in ("NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume")
    }


@pytest.mark.share(4)
@pytest.mark.parametrize("code", ["UNAVAILABLE", "UNAVAILABLE after", "INTERNAL after", "twice"])
async def test_a_call_with_an_uncertain_or_repeated_outcome_is_taken_away_in_the_end(
    cluster: CsiCluster, code: str
) -> None:
    cluster.bind()
    cluster.driver.fault("NodeStageVolume", code)
    cluster.driver.fault("NodePublishVolume", code)
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        assert len(cluster.driver.mounts.table()) == 2
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()


@pytest.mark.long
async def test_a_hung_driver_delays_no_other_volume(cluster: CsiCluster) -> None:
    cluster.csi_driver(volumeLifecycleModes=["Ephemeral"], podInfoOnMount=True)
    cluster.driver.fault("NodePublishVolume", "hang", times=30)
    other = CsiDriver(cluster.root, cluster.root.parent / "other", "other.csi.k8s.io", capabilities=())
    cluster.objects["CSIDriver//other.csi.k8s.io"] = {
        "metadata": {},
        "spec": {"volumeLifecycleModes": ["Ephemeral"], "podInfoOnMount": True},
    }
    other.start()
    async with cluster.volume():
        for number in range(30):
            cluster.run(f"hung-{number}", inline={"driver": DRIVER})
        await cluster.until(lambda: cluster.driver.calls("NodeGetCapabilities", "NodeGetInfo"))
        cluster.run("a", inline={"driver": "other.csi.k8s.io"})
        monitored = other.mounts
        await cluster.until(lambda: monitored.is_mounted(cluster.target("a", "v")))
    cluster.driver.stop()
    other.stop()


@pytest.mark.long
async def test_a_driver_that_lies_about_unpublishing_keeps_the_data_and_the_directory(cluster: CsiCluster) -> None:
    cluster.bind()
    (cluster.driver.volume("data") / "file").write_text("data")
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        unmount = cluster.driver.mounts.unmount
        cluster.driver.mounts.unmount = lambda target: None  # type: ignore[method-assign]
        cluster.run("a", PodState.FINISHED)
        await cluster.until(
            lambda: (v := cluster.shown("a")) and "is still mounted after the driver answered" in v.error
        )
        assert (cluster.target("a").parent / "vol_data.json").exists()
        cluster.driver.mounts.unmount = unmount  # type: ignore[method-assign]
        await cluster.until_nothing_is_left()
    assert (cluster.driver.volume("data") / "file").read_text() == "data"


@pytest.mark.long
@pytest.mark.share(3)
@pytest.mark.parametrize("broken", ['{"specVolID":"pv-1"', "[" * 100_000, '{"driverName":"\\ud800"}'])
async def test_a_record_that_is_broken_is_an_error_that_names_it(cluster: CsiCluster, broken: str) -> None:
    cluster.bind()
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
    record = cluster.target("a").parent / "vol_data.json"
    content = record.read_text()
    record.write_text(broken)
    cluster.run("a", PodState.FINISHED)
    async with cluster.volume():
        await cluster.until(
            lambda: (v := cluster.shown("a")) and f"{record} cannot be read: it is no JSON; unmount" in v.error
        )
        assert cluster.driver.mounts.is_mounted(cluster.target("a"))
        assert cluster.driver.calls("NodeUnstageVolume") == []  # the record may name any device
        record.write_text(content)
        await cluster.until_nothing_is_left()


async def test_a_driver_that_has_no_method_it_promises_is_an_error_and_leaves_nothing(cluster: CsiCluster) -> None:
    cluster.bind()
    cluster.driver.fault("NodeStageVolume", "UNIMPLEMENTED", times=1000)
    async with cluster.volume():
        cluster.run("a")
        assert await cluster.until_error("a") == (
            'MountVolume.MountDevice failed for volume "pv-1" : rpc error: code = Unimplemented desc = NodeStageVolume '
            "fails on request"
        )
        assert cluster.driver.calls("NodePublishVolume") == []
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()
        assert cluster.driver.calls("NodeUnstageVolume") == []


async def test_a_record_of_a_staged_volume_that_is_broken_keeps_it_staged_and_the_next_pod_writes_it_again(
    cluster: CsiCluster,
) -> None:
    cluster.bind()
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
    [record] = (cluster.root / "plugins/kubernetes.io/csi" / DRIVER).glob("*/vol_data.json")
    content = record.read_text()
    record.write_text("{}")
    cluster.run("a", PodState.FINISHED)
    async with cluster.volume():
        await cluster.until(lambda: len(cluster.driver.mounts.table()) == 1)
        cluster.run("b")
        await cluster.until_mounted("b")
        assert record.read_text() == content
        assert cluster.driver.calls("NodeUnstageVolume") == []
        cluster.run("b", PodState.FINISHED)
        await cluster.until_nothing_is_left()
