"""CSI drivers that break their promises: the error names the cause, no data goes, and the volume recovers with its
driver."""

from collections.abc import AsyncIterator

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from tests.fakes.csi_driver import STAGE
from tests.service.volume.csi_cluster import CsiCluster, running_csi_cluster


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    async with running_csi_cluster(monkeypatch) as cluster:
        cluster.bind()
        (cluster.driver.volume("data") / "file").write_text("data")
        yield cluster
        assert (cluster.driver.volume("data") / "file").read_text() == "data"


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_staged_volume_whose_driver_stages_no_more_stays_until_it_does(
    cluster: CsiCluster, caplog: pytest.LogCaptureFixture, restarts: bool
) -> None:
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        cluster.driver.capabilities = ()
        if not restarts:
            cluster.run("a", PodState.FINISHED)
            await cluster.until(lambda: "is still mounted after the driver answered" in caplog.text)
    async with cluster.volume():
        cluster.run("a", PodState.FINISHED)
        await cluster.until(lambda: "is still mounted after the driver answered" in caplog.text)
        assert len(cluster.driver.mounts.table()) == 1, "the staged volume is there"
        assert cluster.driver.calls("NodeUnstageVolume") == []
        cluster.driver.capabilities = (STAGE,)
        await cluster.until_nothing_is_left()


@pytest.mark.long
async def test_a_driver_that_stages_only_since_a_volume_was_published_is_an_error_of_the_next_pod(
    cluster: CsiCluster,
) -> None:
    cluster.driver.capabilities = ()
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        cluster.driver.capabilities = (STAGE,)
        cluster.run("b")
        assert "code = InvalidArgument desc = the volume is not staged at" in await cluster.until_error("b")
        assert (shown := cluster.shown("a")) is not None and shown.state is VolumeState.MOUNTED
        assert cluster.driver.mounts.is_mounted(cluster.target("a"))
        for uid in ("a", "b"):
            cluster.run(uid, PodState.FINISHED)
        await cluster.until_nothing_is_left()
        cluster.run("c")
        await cluster.until_mounted("c")
        assert len(cluster.driver.calls("NodeStageVolume")) == 1


async def test_a_driver_that_does_not_answer_what_it_can_do_mounts_nothing(cluster: CsiCluster) -> None:
    cluster.driver.fault("NodeGetCapabilities", "UNIMPLEMENTED", times=1000)
    async with cluster.volume():
        cluster.run("a")
        assert await cluster.until_error("a") == (
            'MountVolume.MountDevice failed for volume "pv-1" : rpc error: code = Unimplemented desc = '
            "NodeGetCapabilities fails on request"
        )
        assert cluster.driver.mounts.table() == {}
        cluster.driver.fault("NodeGetCapabilities")
        await cluster.until_mounted("a")


@pytest.mark.share(4)
@pytest.mark.parametrize("fault", ["answers twice", "garbage"])
@pytest.mark.parametrize("method", ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"])
async def test_an_answer_that_is_no_answer_leaves_nothing_behind(cluster: CsiCluster, method: str, fault: str) -> None:
    cluster.driver.fault(method, fault)
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        assert len(cluster.driver.mounts.table()) == 2
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()


@pytest.mark.long
@pytest.mark.parametrize(
    "fault, text",
    [
        ("garbage", "the answer to /csi.v1.Node/NodeGetCapabilities cannot be decoded"),
        ("answers twice", "/csi.v1.Node/NodeGetCapabilities has two answers"),
    ],
)
async def test_an_answer_that_is_no_answer_is_an_error_that_names_the_call(
    cluster: CsiCluster, fault: str, text: str
) -> None:
    cluster.driver.fault("NodeGetCapabilities", fault, times=1000)
    async with cluster.volume():
        cluster.run("a")
        assert f"rpc error: code = Internal desc = {text}" in await cluster.until_error("a")
