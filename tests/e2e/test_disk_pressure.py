"""A full filesystem, on a loop device that holds the root directory, the logs and the runtime's images: what is removed
before a pod is evicted, and that neither 0 free bytes nor 0 free inodes end a process of the agent."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from services.podsync.controllers import eviction
from shared.model.objects import Object
from tests.support.agents.conditions import condition_of
from tests.support.agents.world import World
from tests.support.clusters.cluster import Cluster
from tests.support.installed.chosen_programs import runs_in_docker
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS
from tools.oci_image import Image

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

MIB = 1 << 20
SIZE, INODES = 400 * MIB, 8192
UNUSED = "localhost/bulkhead/unused:1"
PARTS = ("kubelet", "docker/data" if runs_in_docker() else "containerd/root", "log")  # of the agent's home
PROCESSES = (*SERVICES, "supervisord")


@contextmanager
def small_disk(directory: Path, home: Path) -> Iterator[Path]:
    """An ext4 in a sparse file, mounted over these parts of the agent's home; yields its mount point."""
    image, disk = directory / "disk.img", directory / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-N", str(INODES), str(image)], check=True)
    mounted: list[Path] = []
    try:
        subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
        mounted.append(disk)
        for part in PARTS:
            source, target = disk / part, home / part
            source.mkdir(parents=True)
            target.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--bind", str(source), str(target)], check=True)
            mounted.append(target)
        yield disk
    finally:
        for target in reversed(mounted):
            subprocess.run(["umount", "--recursive", "--lazy", str(target)], check=False, capture_output=True)
        image.unlink()


class SmallDiskWorld(World):
    """Its filesystem is unmounted after the agent has ended."""

    disk: Path
    scratch: Path

    async def __aenter__(self) -> "SmallDiskWorld":
        self._mounts = small_disk(self.scratch, self.home.path)
        self.disk = self._mounts.__enter__()
        return await super().__aenter__()

    async def _take_down(self, *, failed: bool) -> None:
        try:
            await super()._take_down(failed=failed)
        finally:
            self._mounts.__exit__(None, None, None)


def allocate(file: Path, size: int) -> None:
    """Give a file so many bytes without writing them."""
    with file.open("ab") as held:
        os.posix_fallocate(held.fileno(), 0, size)


def fill(directory: Path) -> bool:
    """Take every free block. Return whether none is free: a process may remove a file meanwhile."""
    for size in (16 * MIB, MIB, 1 << 12):
        with (directory / f"ballast-{size}").open("ab") as ballast, suppress(OSError):
            for offset in range(ballast.tell(), SIZE, size):
                os.posix_fallocate(ballast.fileno(), offset, size)
    return os.statvfs(directory).f_bavail == 0


def fill_inodes(directory: Path) -> bool:
    """Take every free inode. Return whether none is free: a process may remove a file meanwhile."""
    with suppress(OSError):
        for number in range(INODES):
            (directory / f"file-{number}").touch()
    return os.statvfs(directory).f_ffree == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    config = {
        "evictionHard": {"nodefs.available": "25%", "nodefs.inodesFree": "20%"},
        "evictionPressureTransitionPeriod": f"{5 * SLOWNESS:.0f}s",  # for which the Node shows it
        "imageMinimumGCAge": "1s",
        "volumeStatsAggPeriod": "1s",
    }
    directory = tmp_path_factory.mktemp("cluster")

    class OnThisDisk(SmallDiskWorld):
        scratch = directory

    async with Cluster(directory, config=config, world=OnThisDisk) as running:
        yield running


def disk_of(cluster: Cluster) -> Path:
    assert isinstance(cluster.agent, SmallDiskWorld)
    return cluster.agent.disk


def pod_with_files(cluster: Cluster, name: str, request: str = "") -> Object:
    """A pod with an emptyDir, and a request for local storage."""
    pod = cluster.pod(name, restartPolicy="Never")
    pod["spec"]["volumes"] = [{"name": "held", "emptyDir": {}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "held", "mountPath": "/held"}]
    if request:
        pod["spec"]["containers"][0]["resources"] = {"requests": {"ephemeral-storage": request}}
    return pod


def held_of(world: World, pod: Object) -> Path:
    """Return the directory of the pod's emptyDir on the host."""
    return world.home.path / f"kubelet/pods/{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir/held"


async def held_by(cluster: Cluster, name: str) -> Path:
    pod = await cluster.get_pod(name)
    assert pod is not None
    return held_of(cluster.agent, pod)


async def wait_read(cluster: Cluster, least: Mapping[str, int]) -> None:
    """Wait until the pods are ready, and the agent has read that each uses these bytes at least. A pod without figures
    is evicted first, and on a slow machine podsync ranks by figures from before the disk was full."""
    await cluster.wait_ready(*least)

    async def read() -> bool:
        summary = await cluster.agent.get_json("/stats/summary") or {"pods": []}
        used = {pod["podRef"]["name"]: pod.get("ephemeral-storage", {}).get("usedBytes", -1) for pod in summary["pods"]}
        return all(used.get(name, -1) >= count for name, count in least.items())

    await cluster.wait_for(read, f"the usage of {', '.join(least)}")


async def wait_evicted(cluster: Cluster, name: str) -> Object:
    return await cluster.wait_pod(
        name, lambda pod: pod["status"].get("phase") == "Failed", "to be evicted", 3 * WAIT_SECONDS
    )


async def wait_pressure(cluster: Cluster, status: str) -> None:
    async def reported() -> bool:
        return bool(condition_of(await cluster.node(), "DiskPressure").get("status") == status)

    await cluster.wait_for(reported, f"DiskPressure to be {status}", 3 * WAIT_SECONDS)


def pids(cluster: Cluster) -> dict[str, int]:
    agent = cluster.agent
    return {name: agent.supervisord_pid if name == "supervisord" else agent.pid_of(name) for name in PROCESSES}


async def test_dead_containers_then_unused_images_then_the_pod_that_exceeds_its_request(cluster: Cluster) -> None:
    agent = cluster.agent
    unused = Image(name=UNUSED, command=("/bin/sh",), files={"/unused": (os.urandom(40 * MIB), 0o644)})
    await agent.import_images([unused])
    agent.kill("podsync")  # the age of an image counts from the list that a process makes at its start
    await cluster.create(cluster.pod("done", "sh", "-c", "fallocate -l 41943040 /file", restartPolicy="Never"))
    await cluster.wait_pod("done", lambda pod: pod["status"].get("phase") == "Succeeded", "to end")
    for name, request in (("grows", ""), ("within", "100Mi")):
        await cluster.create(pod_with_files(cluster, name, request))
    await wait_read(cluster, {"grows": 0, "within": 0})
    allocate(await held_by(cluster, "within") / "file", 48 * MIB)
    allocate(await held_by(cluster, "grows") / "file", 32 * MIB)

    async def images() -> list[str]:
        return [name for image in await agent.runtime.list_images() for name in image.repo_tags]

    async def containers_of(name: str) -> int:
        pod = await cluster.get_pod(name)
        assert pod is not None
        seen = (await agent.runtime.observe(pod["metadata"]["uid"])).get(pod["metadata"]["uid"])
        return len(seen.containers) if seen is not None else 0

    assert UNUSED in await images() and await containers_of("done") == 1
    free = os.statvfs(disk_of(cluster))
    surplus = free.f_frsize * free.f_bavail - 90 * MIB
    pressure = asyncio.create_task(wait_pressure(cluster, "True"))  # which lasts for some seconds only
    allocate(disk_of(cluster) / "ballast", surplus)  # what is removed frees enough

    async def relieved() -> bool:
        return UNUSED not in await images() and await containers_of("done") == 0

    await cluster.wait_for(relieved, "dead containers and unused images to be removed", 3 * WAIT_SECONDS)
    await pressure
    for name in ("grows", "within"):
        pod = await cluster.get_pod(name)
        assert pod is not None and pod["status"]["phase"] == "Running"
    done = await cluster.get_pod("done")
    assert done is not None and done["status"]["phase"] == "Succeeded"
    await wait_pressure(cluster, "False")

    free = os.statvfs(disk_of(cluster))
    pressure = asyncio.create_task(wait_pressure(cluster, "True"))  # which may end before the eviction is reported
    allocate(disk_of(cluster) / "more", free.f_frsize * free.f_bavail - 85 * MIB)  # nothing is left to be removed
    status = (await wait_evicted(cluster, "grows"))["status"]
    assert status["reason"] == "Evicted"
    assert status["message"].startswith("The node was low on resource: ephemeral-storage. Threshold quantity: ")
    event = await cluster.wait_event_of("grows", "Evicted")
    assert event["metadata"]["annotations"]["starved_resource"] == "ephemeral-storage"
    within = await cluster.get_pod("within")
    assert within is not None and within["status"]["phase"] == "Running"
    await pressure  # the Node may show it later than podsync acts, and "False" until then
    for name in ("ballast", "more"):
        (disk_of(cluster) / name).unlink()
    await wait_pressure(cluster, "False")


async def evicted_at(cluster: Cluster, name: str) -> datetime:
    """When the pod's event Evicted was recorded, to the second."""
    event = await cluster.wait_event_of(name, "Evicted")
    return datetime.fromisoformat(event["firstTimestamp"])


async def is_evicted_late_or_not_at_all(cluster: Cluster, name: str, first: str) -> bool:
    """Return whether the pod runs on, or was evicted only when podsync had waited in vain for the end of the first one:
    a runtime on a full disk, and processes that start again on a slow machine, may need longer than it waits."""
    pod = await cluster.get_pod(name)
    assert pod is not None
    if pod["status"]["phase"] == "Running":
        return True
    waited = await evicted_at(cluster, name) - await evicted_at(cluster, first)
    return waited >= timedelta(seconds=eviction.MAX_WAIT_SECONDS - 1)


@pytest.mark.parametrize(("what", "resource"), [("bytes", "ephemeral-storage"), ("inodes", "inodes")])
async def test_with_0_free_bytes_or_inodes_the_agent_evicts_reports_and_recovers(
    cluster: Cluster, what: str, resource: str
) -> None:
    await wait_pressure(cluster, "False")
    calm, fills, after = f"calm-{what}", f"fills-{what}", f"after-{what}"
    await cluster.create(pod_with_files(cluster, calm, "100Mi"))
    await cluster.create(pod_with_files(cluster, fills))
    await wait_read(cluster, {calm: 0, fills: 0})
    before = pids(cluster)
    pressure = asyncio.create_task(wait_pressure(cluster, "True"))  # which lasts for some seconds only
    take_all, held = fill if what == "bytes" else fill_inodes, await held_by(cluster, fills)
    await cluster.agent.wait_for(lambda: take_all(held), f"no free {what}")
    status = (await wait_evicted(cluster, fills))["status"]
    assert status["reason"] == "Evicted"
    assert f"The node was low on resource: {resource}. " in status["message"]
    await pressure
    await wait_pressure(cluster, "False")
    assert await is_evicted_late_or_not_at_all(cluster, calm, fills)
    await cluster.create(cluster.pod(after))
    await cluster.wait_ready(after)
    assert pids(cluster) == before
    for name in (calm, fills, after):
        await cluster.delete_pod(name)
    await cluster.wait_gone(calm, fills, after)


async def test_a_kill_of_podsync_and_pleg_during_an_eviction_loses_no_eviction_and_adds_none(cluster: Cluster) -> None:
    await wait_pressure(cluster, "False")
    agent, names = cluster.agent, ("largest", "smaller")
    for name in names:
        await cluster.create(pod_with_files(cluster, name))
    await wait_read(cluster, dict.fromkeys(names, 0))
    used = {"smaller": 20 * MIB, "largest": 60 * MIB}
    for name, size in used.items():
        allocate(await held_by(cluster, name) / "file", size)
    await wait_read(cluster, used)
    largest = await cluster.get_pod("largest")
    assert largest is not None
    record = agent.home.path / f"kubelet/bulkhead/podsync/pods/{largest['metadata']['uid']}.json"
    free = os.statvfs(disk_of(cluster))
    allocate(disk_of(cluster) / "ballast", free.f_frsize * free.f_bavail - 85 * MIB)
    # Before the record has it nothing is decided, and the next podsync ranks what the next pleg has read by then.
    await agent.wait_for(lambda: '"Evicted"' in record.read_text(), "the eviction to be saved", 2 * WAIT_SECONDS)
    agent.reset_start_counts()
    killed = {service: agent.kill(service) for service in ("podsync", "pleg")}
    for service, pid in killed.items():
        await agent.wait_back(service, pid)
    status = (await wait_evicted(cluster, "largest"))["status"]
    assert status["reason"] == "Evicted"
    await wait_pressure(cluster, "False")
    assert await is_evicted_late_or_not_at_all(cluster, "smaller", "largest")
    (disk_of(cluster) / "ballast").unlink()
