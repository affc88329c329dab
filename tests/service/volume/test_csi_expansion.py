"""Expansion of CSI volumes: at the mount and while a pod runs, with what becomes of the claim's status."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from tests.fakes.csi_driver import EXPAND, MOUNT_GROUP, STAGE
from tests.service.volume.csi_cluster import CsiCluster, running_csi_cluster
from tests.unit.volume.claims import CLAIM, PV

PENDING = {
    "allocatedResources": {"storage": "2Gi"},
    "allocatedResourceStatuses": {"storage": "NodeResizePending"},
    "conditions": [{"type": "FileSystemResizePending", "status": "True"}, {"type": "Kept", "status": "True"}],
}
SUCCEEDED = 'MountVolume.NodeExpandVolume succeeded for volume "pv-1" n'


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    async with running_csi_cluster(monkeypatch) as cluster:
        cluster.bind()
        yield cluster


def events(cluster: CsiCluster, reason: str) -> list[tuple[str, str]]:
    return [(e.kind, e.message) for e in cluster.events.state.values() if e.reason == reason]


def status(cluster: CsiCluster) -> Any:
    return cluster.objects[CLAIM]["status"]


@pytest.mark.parametrize("block", [False, True])
async def test_a_volume_is_expanded_before_its_pod_gets_it(cluster: CsiCluster, block: bool) -> None:
    cluster.bind(block=block, nodeExpandSecretRef={"name": "grow", "namespace": "shop"})
    cluster.objects["VolumeSecret/shop/grow"] = {"metadata": {}, "data": {"user": "YQ=="}}
    cluster.set_claim("2", **PENDING)
    cluster.driver.fault("NodeExpandVolume", "UNAVAILABLE")
    async with cluster.volume():
        cluster.run("a", block=block)
        assert (await cluster.until_error("a")).startswith(
            'MountVolume.Setup failed while expanding volume for volume "pv-1" : kubernetes.io/csi: Expander.NodeExpand'
        )
        await cluster.until_mounted("a")
        call = cluster.driver.calls("NodeExpandVolume")[-1]
        published = cluster.driver.calls("NodePublishVolume")[-1]
        assert call["volume_path"] == published["target_path"]
        assert call["staging_target_path"] == published["staging_target_path"]
        assert call["capacity_range"] == {"required_bytes": str(2 << 30)}
        assert ("block" in call["volume_capability"]) is block
        assert call["secrets"] == {"user": "a"}
        assert cluster.patches[0] == {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}
        assert status(cluster)["capacity"] == {"storage": "2Gi"}
        assert status(cluster)["allocatedResourceStatuses"] == {}
        assert [each["type"] for each in status(cluster)["conditions"]] == ["Kept"]
        await cluster.events.until(lambda _: len(events(cluster, "FileSystemResizeSuccessful")) == 2)
        assert events(cluster, "FileSystemResizeSuccessful") == [
            ("Pod", SUCCEEDED),
            ("PersistentVolumeClaim", SUCCEEDED),
        ]
        assert events(cluster, "FailedMount")
        cluster.run("b", block=block)
        await cluster.until_mounted("b")
        assert len(cluster.driver.calls("NodeExpandVolume")) == 1  # a fault comes before the call is logged


async def test_a_mounted_volume_grows_beside_its_pods(cluster: CsiCluster) -> None:
    async with cluster.volume():
        cluster.run("a")
        cluster.run("b")
        await cluster.until_mounted("a", "b")
        cluster.driver.fault("NodeExpandVolume", "INTERNAL", times=2)
        cluster.set_claim("2", **PENDING)
        await cluster.until(lambda: status(cluster)["capacity"] == {"storage": "2Gi"})
        for uid in ("a", "b"):
            assert (shown := cluster.shown(uid)) is not None
            assert (shown.state, shown.error) == (VolumeState.MOUNTED, "")
        failed = events(cluster, "VolumeResizeFailed")
        assert failed and failed[0][1].startswith('NodeExpandVolume.NodeExpandVolume failed for volume "pv-1" : ')
        conditions = [each["type"] for patch in cluster.patches for each in patch.get("conditions", ())]
        assert "NodeResizeError" in conditions
        assert [each["type"] for each in status(cluster)["conditions"]] == ["Kept"]
        assert status(cluster)["allocatedResourceStatuses"] == {}


@pytest.mark.long
async def test_a_driver_that_mounts_for_a_group_expands_without_one(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = (STAGE, EXPAND, MOUNT_GROUP)
    cluster.set_claim("2", **PENDING)
    async with cluster.volume():
        cluster.run("a", group=2000)
        await cluster.until_mounted("a")
    (published,), (expanded,) = cluster.driver.calls("NodePublishVolume"), cluster.driver.calls("NodeExpandVolume")
    mount = published["volume_capability"]["mount"]
    assert mount.pop("volume_mount_group") == "2000"
    assert expanded["volume_capability"]["mount"] == mount


async def test_without_the_recovery_protocol_only_the_capacity_is_written(cluster: CsiCluster) -> None:
    cluster.driver.capabilities = (STAGE,)  # and a driver that expands nothing on nodes
    cluster.set_claim("2")
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        assert cluster.patches == [{"capacity": {"storage": "2Gi"}}]
        assert cluster.driver.calls("NodeExpandVolume") == []


@pytest.mark.parametrize(
    ("code", "state"), [("OUT_OF_RANGE", "NodeResizeInfeasible"), ("FAILED_PRECONDITION", "NodeResizeInProgress")]
)
async def test_an_expansion_that_cannot_be_is_not_repeated_and_the_pod_starts(
    cluster: CsiCluster, code: str, state: str
) -> None:
    cluster.set_claim("2", **PENDING)
    cluster.driver.fault("NodeExpandVolume", code, times=1000)
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        assert status(cluster)["allocatedResourceStatuses"] == {"storage": state}
        assert status(cluster)["capacity"] == {"storage": "1Gi"}
        await cluster.events.until(lambda _: bool(events(cluster, "VolumeResizeFailed")))
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()


@pytest.mark.long
@pytest.mark.parametrize("state", ["ControllerResizeInProgress", "NodeResizeInfeasible"])
async def test_another_state_of_the_claim_asks_nothing_of_this_node(cluster: CsiCluster, state: str) -> None:
    cluster.set_claim("2", allocatedResources={"storage": "2Gi"}, allocatedResourceStatuses={"storage": state})
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        assert (cluster.patches, cluster.driver.calls("NodeExpandVolume")) == ([], [])


@pytest.mark.long
async def test_a_claim_that_changed_meanwhile_is_read_again(cluster: CsiCluster) -> None:
    cluster.set_claim("2", **PENDING)
    async with cluster.volume():
        cluster.changed.put(CLAIM, cluster.changed.get(CLAIM))  # type: ignore[arg-type]
        cluster.objects[CLAIM]["metadata"]["resourceVersion"] = "3"
        cluster.run("a")
        await cluster.until_mounted("a")
        assert status(cluster)["capacity"] == {"storage": "2Gi"}


@pytest.mark.parametrize("capabilities", [(STAGE,), (STAGE, EXPAND)])
async def test_a_claim_of_many_nodes_that_was_expanded_once_is_mounted_without_an_expansion(
    cluster: CsiCluster, capabilities: tuple[str, ...]
) -> None:
    cluster.driver.capabilities = capabilities
    cluster.driver.fault("NodeExpandVolume", "INTERNAL", times=1000)
    cluster.objects[PV]["spec"]["accessModes"] = ["ReadWriteMany"]
    cluster.set_claim("2", capacity={"storage": "2Gi"}, allocatedResources={"storage": "2Gi"})
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        assert cluster.driver.calls("NodeExpandVolume") == []
        assert cluster.patches == []
