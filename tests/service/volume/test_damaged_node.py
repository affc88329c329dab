"""What one damaged record or directory costs the rest of the node, and that the damage heals."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.messages.sources import NodeObject
from bus.messages.status import PatchClaimStatus, RequestToken, VolumesReported
from bus.messages.streams import VOLUMES_IN_USE, VOLUMES_REPORTED
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.specs.csi_volume import attachment_name
from tests.fakes.followed import FollowedStream
from tests.service.volume import csi_cluster
from tests.service.volume.csi_cluster import DRIVER, CsiCluster, running_csi_cluster
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS, measure_slowness

HEALTHY, EARLIER = f"kubernetes.io/csi/{DRIVER}^data", "kubernetes.io/csi/other.example.com^earlier"


class AttachingCluster(CsiCluster):
    """The driver's volumes are attached by a controller; status and the controller are played."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.in_use = FollowedStream(self.podsync, VOLUMES_IN_USE)

    async def start_status(self) -> None:
        bus = self.network.bus("status")
        bus.answer(RequestToken, self._issue)
        bus.answer(PatchClaimStatus, self._patch)
        self.reported = bus.own(VOLUMES_REPORTED)
        await bus.start()

    def put_node(self, version: str, *, attached: tuple[str, ...] = ()) -> None:
        """The Node, which an earlier process of volume has given the volume EARLIER."""
        names = [{"name": name, "devicePath": ""} for name in attached]
        status = {"volumesInUse": [EARLIER], "volumesAttached": names}
        self.node.put(
            "node", NodeObject(node={"metadata": {"name": "n", "resourceVersion": version}, "status": status})
        )


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    async with running_csi_cluster(monkeypatch) as cluster:
        cluster.bind()
        yield cluster


@pytest.fixture
async def damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AttachingCluster]:
    monkeypatch.setattr(csi_cluster, "CsiCluster", AttachingCluster)
    cluster = csi_cluster.csi_cluster(tmp_path_factory.mktemp("c"), monkeypatch)
    assert isinstance(cluster, AttachingCluster)
    volumes_of = PodDirectories.volumes_of

    def unlistable(directories: PodDirectories, uid: str, plugin: str) -> list[str]:
        if uid == "unlistable":
            raise PermissionError(13, "Permission denied", uid)
        return volumes_of(directories, uid, plugin)

    monkeypatch.setattr(PodDirectories, "volumes_of", unlistable)
    (cluster.root / "pods" / "unlistable").mkdir(parents=True)
    record = cluster.root / "pods" / "gone" / "volumes" / "kubernetes.io~csi" / "pv-a" / "vol_data.json"
    record.parent.mkdir(parents=True)
    record.touch()
    fifo = record.parent.parent / "pv-b" / "vol_data.json"
    fifo.parent.mkdir()
    os.mkfifo(fifo)
    cluster.driver.start()
    await cluster.start()
    cluster.csi_driver(attachRequired=True)
    name = attachment_name("data", DRIVER, "n")
    cluster.objects[f"VolumeAttachment//{name}"] = {"metadata": {"name": name}, "status": {"attached": True}}
    cluster.bind()
    yield cluster
    cluster.driver.stop()


async def test_a_healthy_pod_gets_its_attachable_volume_beside_a_bad_record_an_unlistable_directory_and_a_silent_url(
    damaged: AttachingCluster,
) -> None:
    """A URL that does not answer leaves `pods.desired`, and with it `pods.volumes`, incomplete."""
    damaged.put_node("1")
    async with damaged.volume():
        damaged.run("healthy")
        state = await damaged.in_use.until(lambda state: "node" in state and HEALTHY in state["node"].volumes)
        assert state["node"].volumes == (HEALTHY, EARLIER), "what the Node has may be of what cannot be read"
        generation, names = state["node"].generation, state["node"].volumes
        damaged.reported.put("node", VolumesReported(generation=generation, volumes=names, resource_version="2"))
        damaged.put_node("3", attached=(HEALTHY,))
        attached = time.monotonic()
        async with asyncio.timeout(WAIT_SECONDS):
            await damaged.until_mounted("healthy")
        assert time.monotonic() - attached < 2.0 * max(SLOWNESS, measure_slowness())
        damaged.admitted.mark_complete()
        damaged.run("second")
        await damaged.until_mounted("second")
        assert EARLIER in damaged.in_use.state["node"].volumes


@pytest.mark.long
@pytest.mark.parametrize("record", ["pods", "plugins"])
async def test_a_record_that_a_power_cut_has_emptied_is_written_again(cluster: CsiCluster, record: str) -> None:
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
    (emptied,) = (cluster.root / record).rglob("vol_data.json")
    emptied.write_bytes(b"")
    async with cluster.volume():
        await cluster.until(lambda: emptied.stat().st_size)
        await cluster.until_mounted("a")
