"""CSI volumes through kills of volume and of the driver at every call: which mounts are left."""

import asyncio

import pytest

from bus.messages.podsync import PodState
from services.volume.adapters import csi_client
from tests.service.volume.csi_cluster import CsiCluster
from tests.support.waits.deadline import WAIT_SECONDS

METHODS = ("NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
POINTS = [f"volume.csi.{step}.{method}" for step in ("calling", "answered") for method in METHODS]


class KilledError(BaseException):
    """In place of SIGKILL: no handler of Exception runs."""


@pytest.mark.long
@pytest.mark.share(5)
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_a_call_leaves_the_mounts_of_an_undisturbed_run(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch, point: str, block: bool
) -> None:
    cluster.bind(block=block)
    reached, looked = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def end_there(name: str) -> None:
        if name == point:
            loop.call_soon_threadsafe(reached.set)
            raise KilledError

    async def through() -> None:
        cluster.run("a", block=block)
        await cluster.until_mounted("a")
        if was_mounting:
            await looked.wait()
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()

    was_mounting = "Unp" not in point and "Uns" not in point
    with monkeypatch.context() as killed:
        killed.setattr(csi_client, "crash_point", end_there)
        async with cluster.volume():
            going = asyncio.create_task(through())
            await asyncio.wait_for(reached.wait(), WAIT_SECONDS)
    async with cluster.volume():
        if was_mounting:
            await cluster.until_mounted("a")
            mounts = cluster.driver.mounts.table()
            if block:
                assert list(mounts) == [str(cluster.block_link("a").readlink())]
            else:
                assert len(mounts) == 2 and str(cluster.target("a")) in mounts
            looked.set()
        await going
    assert cluster.driver.volume("data").is_dir()


@pytest.mark.share(4)
@pytest.mark.parametrize("method", ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"])
@pytest.mark.parametrize("fault", ["die", "die after"])
async def test_a_driver_that_dies_in_a_call_is_called_again_when_it_is_back(
    cluster: CsiCluster, method: str, fault: str
) -> None:
    cluster.bind()
    died = asyncio.Event()
    loop = asyncio.get_running_loop()

    def die() -> None:
        loop.call_soon_threadsafe(died.set)
        raise RuntimeError("the driver dies")

    cluster.driver._die = die
    cluster.driver.fault(method, fault)

    async def restarted() -> None:
        await died.wait()
        await asyncio.to_thread(cluster.driver.stop)
        cluster.driver = cluster.new_driver()
        cluster.driver.start()

    restarting = asyncio.create_task(restarted())
    async with cluster.volume():
        cluster.run("a")
        await cluster.until_mounted("a")
        cluster.run("a", PodState.FINISHED)
        await cluster.until_nothing_is_left()
        await asyncio.wait_for(restarting, WAIT_SECONDS)
