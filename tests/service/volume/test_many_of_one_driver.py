"""Many volumes of one CSI driver at once: none waits for the files of another, nor long for the unmount of others."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.volume.adapters import csi_client
from services.volume.adapters.csi_client import CsiClient
from services.volume.adapters.ownership import give_to_group
from services.volume.controllers import operation_executor
from services.volume.controllers.operation_executor import MAX_CALLS_PER_DRIVER
from services.volume.plugins import csi
from tests.service.volume.csi_cluster import DRIVER, CsiCluster, running_csi_cluster
from tests.support.waits.deadline import WAIT_SECONDS

INLINE = {"driver": DRIVER}


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CsiCluster]:
    async with running_csi_cluster(monkeypatch) as cluster:
        cluster.csi_driver(
            volumeLifecycleModes=["Ephemeral", "Persistent"], fsGroupPolicy="File", attachRequired=False,
            podInfoOnMount=True,
        )  # fmt: skip
        yield cluster


@pytest.mark.long
async def test_volumes_whose_files_get_a_group_leave_the_driver_to_the_others(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change of the group of millions of files takes minutes, and the driver has nothing to do with it."""
    changing, may_end, real = list[Path](), threading.Event(), give_to_group

    def slow(root: Path, group: int, **more: Any) -> None:
        changing.append(root)
        assert may_end.wait(WAIT_SECONDS)
        real(root, group, **more)

    monkeypatch.setattr(csi, "give_to_group", slow)
    large = [f"large-{number}" for number in range(2 * MAX_CALLS_PER_DRIVER)]
    async with cluster.volume():
        try:
            for uid in large:
                cluster.run(uid, inline=INLINE, group=1000)
            await cluster.until(lambda: len(changing) == len(large))
            cluster.run("small", inline=INLINE)
            await cluster.until_mounted("small")
            assert not any((shown := cluster.shown(uid)) and shown.host_path for uid in large)
        finally:
            may_end.set()
        await cluster.until_mounted(*large)


@pytest.mark.long
async def test_the_volumes_of_pods_that_end_together_are_unpublished_together(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve calls meet at a barrier: each returns only once all are under way."""
    uids = [f"pod-{number}" for number in range(12)]
    together, real = threading.Barrier(len(uids)), CsiClient.unpublish

    def unpublish(client: CsiClient, handle: str, target: str) -> None:
        together.wait(4.0)
        real(client, handle, target)

    async with cluster.volume():
        for uid in uids:
            cluster.run(uid, inline=INLINE)
        await cluster.until_mounted(*uids)
        monkeypatch.setattr(CsiClient, "unpublish", unpublish)
        for uid in uids:
            cluster.run(uid, PodState.FINISHED, inline=INLINE)
        await cluster.until_nothing_is_left()
    assert not together.broken


@pytest.mark.long
async def test_changes_of_groups_on_volumes_of_one_driver_leave_places_for_others(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of files that does not answer holds up the volumes of its own driver alone."""
    changing, may_end = list[Path](), threading.Event()

    def hang(root: Path, group: int, **more: Any) -> None:
        changing.append(root)
        assert may_end.wait(WAIT_SECONDS)

    monkeypatch.setattr(csi, "give_to_group", hang)
    monkeypatch.setattr(operation_executor, "MAX_OWNERSHIP_CHANGES_PER_DRIVER", 2)
    uids = [f"pod-{number}" for number in range(4)]
    async with cluster.volume():
        try:
            for uid in uids:
                cluster.run(uid, inline=INLINE, group=1000)
            await cluster.until(lambda: len(changing) == 2)
            cluster.run("small", inline=INLINE)
            await cluster.until_mounted("small")
            assert len(changing) == 2
        finally:
            may_end.set()
        await cluster.until_mounted(*uids)


@pytest.mark.long
async def test_a_pod_that_ends_waits_for_one_hanging_mount_of_its_volume_at_most(
    cluster: CsiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new pods of a rolling update wait for the device one after another, and each of their calls hangs."""
    new, calls = [f"new-{number}" for number in range(8)], list[str]()
    publish, unpublish = CsiClient.publish, CsiClient.unpublish

    def published(client: CsiClient, *args: Any, **more: Any) -> None:
        calls.append("publish")
        publish(client, *args, **more)

    def unpublished(client: CsiClient, *args: Any, **more: Any) -> None:
        calls.append("unpublish")
        unpublish(client, *args, **more)

    cluster.bind(accessModes=["ReadWriteMany"])
    async with cluster.volume():
        cluster.run("old")
        await cluster.until_mounted("old")
        monkeypatch.setattr(csi_client, "TIMEOUT_SECONDS", 0.4)
        monkeypatch.setattr(CsiClient, "publish", published)
        monkeypatch.setattr(CsiClient, "unpublish", unpublished)
        cluster.driver.fault("NodePublishVolume", "hang", times=10)
        for uid in new:
            cluster.run(uid)
        await cluster.until(lambda: calls)
        before = len(calls)
        cluster.run("old", PodState.FINISHED)
        await cluster.until(lambda: "unpublish" in calls)
        assert calls.index("unpublish") <= before + 1  # one may begin before volume has received that the pod ends
        await cluster.until_mounted(*new)
