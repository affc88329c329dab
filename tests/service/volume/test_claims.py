"""Volumes with claims on the in-memory bus: from the claim that is bound to the mount, and through restarts."""

import asyncio
import contextlib
import copy
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState, PodVolumes
from bus.messages.sources import ChangedObject, FoundObject, GetObject, NodeObject
from bus.messages.volume import VolumeState
from services.volume.adapters import root_dir
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.controllers import claim_reads, reconciliation
from services.volume.core.mounting import orphans
from services.volume.service import Volume
from shared.time.backoff import Backoff
from tests.fakes.disk_plugin import WITH_DISKS
from tests.service.volume.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.volume.claims import CLAIM, PV, Object, claim, pod, volume


class ClaimCluster(Cluster):
    """A cluster whose pods have the claim `data`, on a disk that pods share."""

    answering: asyncio.Event | None = None

    def bound(self, version: str, **spec: Any) -> None:
        """The claim is bound to a disk from now on."""
        self.objects[PV] = volume(disk={"name": "data"}, **spec)
        self.show(CLAIM, claim(), version)

    def show(self, key: str, found: Object, version: str) -> None:
        """Change an object."""
        found["metadata"]["resourceVersion"] = version
        self.objects[key] = found
        self.changed.put(key, ChangedObject(resource_version=version))

    def run(self, uid: str, state: PodState = PodState.SYNC, *, claim: str = "data") -> None:
        """A pod with the volume `v`; without it from TERMINATED on."""
        made = pod()
        made["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = claim
        made["metadata"]["uid"] = uid
        needs = state in (PodState.SYNC, PodState.TERMINATING)
        admitted = PodVolumes(
            uid=uid, name="web", namespace="shop", state=state, pod=made, volumes=("v",) if needs else ()
        )
        self.admitted.put(uid, admitted)

    def state(self, uid: str) -> VolumeState | None:
        shown = self.mounted.state.get(uid)
        return shown.volumes["v"].state if shown is not None and "v" in shown.volumes else None

    def make_again(self) -> None:
        """The claim is deleted and made again, bound to another disk; `objects.changed` does not show it yet."""
        made, found = claim(uid="c2", volume="pv-2"), volume(claim_uid="c2", disk={"name": "new"})
        made["metadata"]["resourceVersion"], found["metadata"] = "50", {"name": "pv-2", "resourceVersion": "51"}
        (self.root / "disks" / "new").mkdir()
        self.objects[CLAIM], self.objects["PersistentVolume//pv-2"] = made, found

    def mount(self, uid: str, persistent: str = "pv-1") -> Path:
        """Where the disk is mounted for a pod."""
        return self.root / "pods" / uid / "volumes" / "kubernetes.io~disk" / persistent / "mount"

    @contextlib.contextmanager
    def delayed(self) -> Iterator[asyncio.Event]:
        """What sources answers from now on is what it had when it was requested, and is sent after the event."""
        self.answering = asyncio.Event()
        yield self.answering
        self.answering = None

    async def _get(self, request: GetObject) -> FoundObject:
        answering, found = self.answering, copy.deepcopy(await super()._get(request))
        if answering is not None:
            await answering.wait()
        return found

    async def until_asked(self, key: str, times: int = 1) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.asked[key] < times:
                await asyncio.sleep(0)

    async def until_state(self, uid: str, state: VolumeState) -> None:
        await self.mounted.until(lambda _: self.state(uid) is state)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClaimCluster:
    monkeypatch.setattr(root_dir, "prepare", lambda path: Path(path).mkdir(parents=True, exist_ok=True))
    monkeypatch.setattr(orphans, "ORPHAN_GRACE_SECONDS", 0.05)
    monkeypatch.setattr("tests.service.volume.cluster.build", lambda context: Volume(context, WITH_DISKS))
    cluster = ClaimCluster(tmp_path)
    (cluster.root / "disks" / "data").mkdir(parents=True)
    cluster.admitted.mark_complete()
    await cluster.start()
    return cluster


async def until_gone(path: Path) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while os.path.lexists(path):
            await asyncio.sleep(0)


async def test_a_pod_is_mounted_as_soon_as_its_claim_is_bound(cluster: ClaimCluster) -> None:
    cluster.show(CLAIM, claim(phase="Pending"), "1")
    cluster.run("u")
    async with cluster.volume():
        reason = "error processing PVC shop/data: PVC is not bound"
        state = await cluster.mounted.until(lambda state: "u" in state and bool(state["u"].volumes["v"].error))
        assert state["u"].volumes["v"].error == reason
        event = (
            "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], "
            f"failed to process volumes=[v]: {reason}"
        )
        await cluster.events.until(lambda events: [each.message for each in events.values()] == [event])
        cluster.bound("2")
        await cluster.until_state("u", VolumeState.MOUNTED)
    assert cluster.mount("u").is_symlink()
    assert cluster.mounted.state["u"].volumes["v"].host_path == str(cluster.mount("u"))


async def test_two_pods_share_the_volume_of_one_claim_and_each_object_is_read_once(cluster: ClaimCluster) -> None:
    cluster.bound("1")
    cluster.run("a")
    cluster.run("b")
    async with cluster.volume():
        await cluster.until_state("a", VolumeState.MOUNTED)
        await cluster.until_state("b", VolumeState.MOUNTED)
        log = (cluster.root / "log").read_text().splitlines()
        assert log.count("mount device data") == 1
        cluster.run("a", PodState.FINISHED)
        await until_gone(cluster.mount("a"))
        assert cluster.mount("b").is_symlink()


@pytest.mark.long
async def test_a_claim_that_is_deleted_under_a_running_pod_leaves_the_mount(cluster: ClaimCluster) -> None:
    cluster.bound("1")
    cluster.run("u")
    async with cluster.volume():
        await cluster.until_state("u", VolumeState.MOUNTED)
        asked = cluster.asked[CLAIM]
        del cluster.objects[CLAIM]
        cluster.changed.put(CLAIM, ChangedObject(resource_version=""))
        async with asyncio.timeout(WAIT_SECONDS):
            while cluster.asked[CLAIM] == asked:
                await asyncio.sleep(0)
        cluster.run("other")
        await cluster.until_state("other", VolumeState.ERROR)
        assert cluster.state("u") is VolumeState.MOUNTED
    async with cluster.volume():  # the next process does not know to which claim the mount belongs
        await cluster.events.until(lambda events: any("not found" in event.message for event in events.values()))
        assert cluster.mount("u").is_symlink()
        cluster.run("u", PodState.FINISHED)
        await until_gone(cluster.root / "pods" / "u")


async def test_a_pod_gets_the_claim_that_was_made_again_while_another_pod_has_the_old_one(
    cluster: ClaimCluster,
) -> None:
    cluster.bound("1")
    cluster.run("old")
    async with cluster.volume():
        await cluster.until_state("old", VolumeState.MOUNTED)
        cluster.run("old", PodState.TERMINATING)
        cluster.make_again()
        cluster.run("new")
        await cluster.until_state("new", VolumeState.MOUNTED)
        assert cluster.mount("new", "pv-2").is_symlink()
        assert not cluster.mount("new").is_symlink()
        assert cluster.mount("old").is_symlink()


async def test_a_pod_gets_no_claim_whose_read_began_before_the_pod_came(cluster: ClaimCluster) -> None:
    cluster.bound("1")
    async with cluster.volume():
        with cluster.delayed() as answer:
            cluster.run("old")
            await cluster.until_asked(CLAIM)
            cluster.make_again()
            cluster.run("new")
            await cluster.mounted.until(lambda state: "new" in state)
            answer.set()
            await cluster.until_state("new", VolumeState.MOUNTED)
        assert cluster.mount("new", "pv-2").is_symlink()
        assert not cluster.mount("new").is_symlink()


@pytest.mark.long
async def test_a_claim_that_sources_could_not_read_is_requested_again(cluster: ClaimCluster) -> None:
    cluster.bound("1")
    cluster.errors[CLAIM] = "timed out waiting for the API server"
    cluster.run("u")
    async with cluster.volume():
        await cluster.until_state("u", VolumeState.ERROR)
        del cluster.errors[CLAIM]  # the version in `objects.changed` stays as it is
        await cluster.until_state("u", VolumeState.MOUNTED)


async def test_a_claim_and_content_that_are_read_slowly_are_waited_for(cluster: ClaimCluster) -> None:
    cluster.bound("1")
    async with cluster.volume():
        with cluster.delayed() as answer:
            cluster.run("u")
            await cluster.until_asked(CLAIM)
            await cluster.network.advance(65.0)
            answer.set()
            await cluster.until_state("u", VolumeState.MOUNTED)
        assert cluster.asked[CLAIM] == 1
    assert not cluster.events.state


async def test_an_outage_is_one_warning_for_all_claims_and_one_line_at_its_end(
    cluster: ClaimCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claim_reads, "RETRIES", Backoff(initial=0.01, cap=0.01))
    caplog.set_level("INFO", claim_reads.__name__)
    cluster.bound("1")
    outage = "API server not reachable: no connection: Connection refused"
    cluster.errors |= {CLAIM: outage, "PersistentVolumeClaim/shop/other": outage}
    cluster.run("u")
    cluster.run("v", claim="other")
    async with cluster.volume():
        for key in cluster.errors:
            await cluster.until_asked(key, 5)
        cluster.errors.clear()
        await cluster.until_state("u", VolumeState.MOUNTED)
        await cluster.until_state("v", VolumeState.ERROR)  # there is no such claim
    levels = [record.levelname for record in caplog.records if record.name == claim_reads.__name__]
    assert levels == ["WARNING", "INFO"]


@pytest.mark.long
async def test_a_teardown_after_a_restart_needs_no_answer_of_sources(cluster: ClaimCluster) -> None:
    cluster.bound("1")
    cluster.run("u")
    async with cluster.volume():
        await cluster.until_state("u", VolumeState.MOUNTED)
    cluster.silent.add("sources")
    cluster.run("u", PodState.FINISHED)
    async with cluster.volume():
        await until_gone(cluster.root / "pods" / "u")
        await until_gone(cluster.root / "plugins" / "kubernetes.io" / "disk" / "data")
    assert (cluster.root / "disks" / "data").is_dir()


async def test_a_restart_while_sources_does_not_answer_leaves_the_mounts_of_running_pods(cluster: ClaimCluster) -> None:
    cluster.bound("1")
    cluster.run("u")
    async with cluster.volume():
        await cluster.until_state("u", VolumeState.MOUNTED)
    before = (cluster.root / "log").read_text()
    cluster.silent.add("sources")
    async with cluster.volume():
        await cluster.mounted.until(lambda _: cluster.state("u") is VolumeState.PENDING)
        assert cluster.mount("u").is_symlink()
    assert (cluster.root / "log").read_text() == before


async def test_a_volume_of_another_zone_is_not_mounted_until_the_node_has_the_label(cluster: ClaimCluster) -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    cluster.bound("1", nodeAffinity={"required": {"nodeSelectorTerms": terms}})
    cluster.run("u")
    cluster.node.put("node", NodeObject(node={"metadata": {"name": "n", "labels": {"zone": "b"}}}))
    async with cluster.volume():
        text = 'MountVolume.NodeAffinity check failed for volume "pv-1" : no matching NodeSelectorTerms'
        await cluster.events.until(lambda events: any(event.message == text for event in events.values()))
        cluster.node.put("node", NodeObject(node={"metadata": {"name": "n", "labels": {"zone": "a"}}}))
        await cluster.until_state("u", VolumeState.MOUNTED)


async def test_a_volume_of_one_pod_is_not_mounted_for_a_second_one(cluster: ClaimCluster) -> None:
    cluster.bound("1", accessModes=["ReadWriteOncePod"])
    cluster.run("a")
    async with cluster.volume():
        await cluster.until_state("a", VolumeState.MOUNTED)
        cluster.run("b")
        text = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
        await cluster.events.until(
            lambda events: any(event.message.endswith(text) and event.uid == "b" for event in events.values())
        )
        assert not cluster.mount("b").exists()
        cluster.run("a", PodState.FINISHED)
        await cluster.until_state("b", VolumeState.MOUNTED)


@pytest.mark.parametrize("removed", [False, True])
async def test_a_volume_of_one_pod_waits_while_the_directory_of_another_pod_cannot_be_read(
    cluster: ClaimCluster, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    cluster.bound("1", accessModes=["ReadWriteOncePod"])
    cluster.run("a")
    async with cluster.volume():
        await cluster.until_state("a", VolumeState.MOUNTED)
    volumes_of, unreadable = PodDirectories.volumes_of, {"a"}

    def read(self: PodDirectories, uid: str, plugin: str) -> list[str]:
        if uid in unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return volumes_of(self, uid, plugin)

    monkeypatch.setattr(PodDirectories, "volumes_of", read)
    monkeypatch.setattr(reconciliation, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(reconciliation, "TURN_SECONDS", 0.1)
    cluster.run("a", PodState.FINISHED)
    cluster.run("b")
    async with cluster.volume():
        text = "ReadWriteOncePod access mode and may be in use by another pod; pods/a cannot be read"
        await cluster.events.until(
            lambda events: any(event.message.endswith(text) and event.uid == "b" for event in events.values())
        )
        assert not cluster.mount("b").exists()
        if removed:
            shutil.rmtree(cluster.root / "pods" / "a")
        else:
            unreadable.clear()
        await cluster.until_state("b", VolumeState.MOUNTED)
        assert not cluster.mount("a").exists()
