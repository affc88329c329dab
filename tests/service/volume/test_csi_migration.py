"""Volumes of in-tree plugins are volumes of the CSI drivers that serve them (volumes.md 15)."""

import asyncio
import os
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.volume.adapters import csi_client
from services.volume.core import reconciler
from tests.fakes.csi_driver import CsiDriver
from tests.service.volume.csi_cluster import CsiCluster
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.volume.claims import CLAIM, PV, claim

CINDER, SHARES, VSPHERE = "cinder.csi.openstack.org", "file.csi.azure.com", "csi.vsphere.vmware.com"
INLINE = {"cinder": {"volumeID": "c-1", "fsType": "ext4"}}
POINTS = [
    f"volume.csi.{step}.{method}"
    for step in ("calling", "answered")
    for method in ("NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
]


def serve(cluster: CsiCluster, name: str, handle: str, *, start: bool = True) -> None:
    """This driver is the one of the cluster, with one volume, which it does not attach."""
    cluster.driver.remove()
    cluster.driver = CsiDriver(cluster.root, cluster.root.parent / "own", name)
    cluster.driver.volume(handle).mkdir(parents=True)
    metadata = {"name": name, "resourceVersion": "1"}
    cluster.objects[f"CSIDriver//{name}"] = {"metadata": metadata, "spec": {"attachRequired": False}}
    if start:
        cluster.driver.start()


def bind(cluster: CsiCluster, source: dict[str, Any], **spec: Any) -> None:
    """The claim is bound to a PersistentVolume of an in-tree plugin."""
    reference = {"claimRef": {"namespace": "shop", "name": "data", "uid": "c1"}, "accessModes": ["ReadWriteOnce"]}
    cluster.objects[PV] = {
        "metadata": {"name": "pv-1", "resourceVersion": "2"},
        "spec": {"capacity": {"storage": "1Gi"}, **reference, **source, **spec},
    }
    cluster.objects[CLAIM] = claim()


async def until_nothing_is_left(cluster: CsiCluster) -> None:
    """Until nothing is mounted, and no record and no directory of a pod is there."""

    def left() -> set[str]:
        # `walk` passes over a directory that is removed meanwhile.
        walked = os.walk(cluster.root / "plugins" / "kubernetes.io")
        found = {name for _, directories, files in walked for name in (*directories, *files)}
        pods = {path.name for path in (cluster.root / "pods").glob("*")}
        return pods | found & {"vol_data.json", "globalmount"}

    await cluster.until(lambda: not cluster.driver.mounts.table() and not left())


@pytest.mark.long
async def test_pods_with_the_same_disk_share_its_staged_volume(cluster: CsiCluster) -> None:
    serve(cluster, CINDER, "c-1")
    async with cluster.volume():
        cluster.run("a", other=INLINE)
        cluster.run("b", other=INLINE)
        await cluster.until_mounted("a", "b")
        (staged,) = cluster.driver.calls("NodeStageVolume")
        assert (staged["volume_id"], staged["volume_capability"]["mount"]) == ("c-1", {"fs_type": "ext4"})
        assert staged["volume_capability"]["access_mode"] == {"mode": "SINGLE_NODE_WRITER"}
        targets = {call["target_path"] for call in cluster.driver.calls("NodePublishVolume")}
        assert targets == {str(cluster.target(uid, f"{CINDER}-c-1")) for uid in "ab"}
        for uid in "ab":
            cluster.run(uid, PodState.FINISHED)
        await until_nothing_is_left(cluster)
        assert len(cluster.driver.calls("NodeUnstageVolume")) == 1


@pytest.mark.long
async def test_a_volume_whose_name_has_slashes_and_spaces_is_found_again_and_taken_away(cluster: CsiCluster) -> None:
    serve(cluster, VSPHERE, "[ds] kubevols/x.vmdk")
    disk = {"vsphereVolume": {"volumePath": "[ds] kubevols/x.vmdk"}}
    async with cluster.volume():
        cluster.run("a", other=disk)
        await cluster.until_mounted("a")
        assert cluster.driver.mounts.is_mounted(cluster.target("a", f"{VSPHERE}-[ds] kubevols~x.vmdk"))
    async with cluster.volume():
        await cluster.until_mounted("a")
        assert len(cluster.driver.calls("NodeStageVolume")) == 1
        cluster.run("a", PodState.FINISHED)
        await until_nothing_is_left(cluster)


@pytest.mark.long
@pytest.mark.parametrize("block", [False, True])
async def test_a_claim_on_an_in_tree_volume_is_a_file_system_or_a_device_of_the_driver(
    cluster: CsiCluster, block: bool
) -> None:
    serve(cluster, CINDER, "c-1")
    bind(cluster, {"cinder": {"volumeID": "c-1", "readOnly": True}}, **({"volumeMode": "Block"} if block else {}))
    async with cluster.volume():
        cluster.run("a", block=block)
        await cluster.until_mounted("a")
        (call,) = cluster.driver.calls("NodePublishVolume")
        assert (call["volume_id"], call["readonly"]) == ("c-1", True)
        assert call["volume_capability"].keys() == {"block" if block else "mount", "access_mode"}
        cluster.run("a", PodState.FINISHED)
        await cluster.until(lambda: not cluster.driver.mounts.table())


@pytest.mark.long
async def test_a_share_of_azure_is_staged_with_the_secret_of_the_pods_namespace(cluster: CsiCluster) -> None:
    serve(cluster, SHARES, "#acct#s#v#shop")
    name = "azure-storage-account-acct-secret"
    cluster.objects[f"VolumeSecret/shop/{name}"] = {"metadata": {}, "data": {"azurestorageaccountname": "YWNjdA=="}}
    async with cluster.volume():
        cluster.run("a", other={"azureFile": {"secretName": name, "shareName": "s"}})
        await cluster.until_mounted("a")
        (staged,) = cluster.driver.calls("NodeStageVolume")
        assert staged["secrets"] == {"azurestorageaccountname": "acct"}
        assert staged["volume_capability"]["access_mode"] == {"mode": "MULTI_NODE_MULTI_WRITER"}


@pytest.mark.long
async def test_a_volume_whose_driver_is_not_installed_has_one_event_that_names_the_driver(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(cluster, CINDER, "c-1", start=False)
    monkeypatch.setattr(reconciler, "QUIET_SECONDS", 0.5)
    async with cluster.volume():
        cluster.run("a", other=INLINE)
        error = await cluster.until_error("a")
        assert error.endswith(f"driver name {CINDER} not found in the list of registered CSI drivers")
        events = await cluster.events.until(bool)
        assert [(event.reason, event.message) for event in events.values()] == [("FailedMount", error)]
        cluster.driver.start()
        await cluster.until_mounted("a")


async def test_a_volume_that_no_driver_can_have_is_an_event_with_the_reason(cluster: CsiCluster) -> None:
    bind(cluster, {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}})
    async with cluster.volume():
        cluster.run("a")
        assert (await cluster.until_error("a")).endswith("Invalid format for AWS volume (aws://zone/disk)")
        events = await cluster.events.until(bool)
        assert {event.reason for event in events.values()} == {"FailedMount"}


@pytest.mark.share(4)
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_a_call_leaves_the_mounts_of_an_undisturbed_run(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    serve(cluster, CINDER, "c-1")
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    class KilledError(BaseException):
        """In place of SIGKILL: no handler of Exception runs."""

    def end_there(name: str) -> None:
        if name == point:
            loop.call_soon_threadsafe(reached.set)
            raise KilledError

    is_mount = "Unp" not in point and "Uns" not in point
    with monkeypatch.context() as killed:
        killed.setattr(csi_client, "crash_point", end_there)
        async with cluster.volume():
            cluster.run("a", other=INLINE)
            if not is_mount:
                await cluster.until_mounted("a")
                cluster.run("a", PodState.FINISHED)
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
    async with cluster.volume():
        if is_mount:
            await cluster.until_mounted("a")
            assert len(cluster.driver.mounts.table()) == 2
            cluster.run("a", PodState.FINISHED)
        await until_nothing_is_left(cluster)
    assert cluster.driver.volume("c-1").is_dir()
