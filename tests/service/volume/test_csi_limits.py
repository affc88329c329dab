"""How many volumes of a driver the node takes is read again, and a pod that it has no place for is to be rejected."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.volume.core.events import mount_waits
from services.volume.core.specs import csi_volume
from services.volume.core.specs.csi_volume import attachment_name
from shared.plugin_grpc import csi_pb2
from tests.service.volume.csi_cluster import DRIVER, CsiCluster, running_csi_cluster

PERIOD = {"nodeAllocatableUpdatePeriodSeconds": 10}
EXHAUSTED = {"message": "no slot left", "errorCode": 8}


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    monkeypatch.setattr(mount_waits, "TIMEOUT_SECONDS", 0.2)
    async with running_csi_cluster(monkeypatch) as cluster:
        cluster.driver.node = info(3)
        yield cluster


def info(count: int) -> csi_pb2.NodeGetInfoResponse:
    return csi_pb2.NodeGetInfoResponse(node_id="node-id", max_volumes_per_node=count)


def bind(cluster: CsiCluster, error: dict[str, Any], **driver: Any) -> None:
    """The volume is attached by a controller, which reports this error."""
    cluster.csi_driver(attachRequired=True, **driver)
    cluster.bind()
    name = attachment_name("data", DRIVER, "n")
    cluster.objects[f"VolumeAttachment//{name}"] = {
        "metadata": {"name": name, "resourceVersion": "1"},
        "status": {"attached": False, "attachError": error},
    }


async def until_count(cluster: CsiCluster, count: int) -> None:
    def shown() -> bool:
        plugin = cluster.registered.state.get(f"CSIPlugin/{DRIVER}")
        return plugin is not None and plugin.csi is not None and plugin.csi.max_volumes == count

    await cluster.until(shown)


def attach_limit(cluster: CsiCluster, uid: str) -> str:
    found = cluster.mounted.state.get(uid)
    return found.attach_limit if found is not None else ""


async def test_a_pod_whose_volume_cannot_be_attached_for_the_limit_is_to_be_rejected(cluster: CsiCluster) -> None:
    bind(cluster, EXHAUSTED, **PERIOD)
    async with cluster.volume():
        await until_count(cluster, 3)
        cluster.driver.node = info(2)
        cluster.run("a")
        await cluster.until(lambda: attach_limit(cluster, "a"))
        assert attach_limit(cluster, "a") == (
            "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v], "
            "unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
        )
        await until_count(cluster, 2)
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()
        await cluster.until(lambda: "a" not in cluster.mounted.state)


@pytest.mark.parametrize(
    "error, driver", [(EXHAUSTED, {}), ({"message": "a fault", "errorCode": 13}, PERIOD), ({"errorCode": "8"}, PERIOD)]
)
async def test_a_pod_waits_for_a_volume_that_is_not_attached_for_another_reason(
    cluster: CsiCluster, error: dict[str, Any], driver: dict[str, Any]
) -> None:
    bind(cluster, error, **driver)
    async with cluster.volume():
        cluster.run("a")
        timed_out = "Unable to attach or mount volumes"
        await cluster.until(lambda: sum(timed_out in each.message for each in cluster.events.state.values()) > 2)
        assert attach_limit(cluster, "a") == ""


async def test_the_count_is_read_again_each_period_that_the_driver_has(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csi_volume, "MIN_PERIOD_SECONDS", 1)
    cluster.csi_driver(attachRequired=False, nodeAllocatableUpdatePeriodSeconds=1)
    async with cluster.volume():
        await until_count(cluster, 3)
        cluster.driver.node = info(9)
        await until_count(cluster, 9)
        cluster.driver.fault("NodeGetInfo", "INTERNAL")  # the count stays until the next call
        cluster.driver.node = info(5)
        await until_count(cluster, 5)


@pytest.mark.long
async def test_a_period_that_is_added_later_counts(cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csi_volume, "MIN_PERIOD_SECONDS", 1)
    async with cluster.volume():
        await until_count(cluster, 3)
        cluster.driver.node = info(4)
        cluster.csi_driver(attachRequired=False, nodeAllocatableUpdatePeriodSeconds=1)
        await until_count(cluster, 4)
