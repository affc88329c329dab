"""A full filesystem, on a loop device that holds the root directory, the logs and the runtime's images: what is removed
before a pod is evicted, and that neither 0 free bytes nor 0 free inodes end a process of the agent."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
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
from tests.support.waits.deadline import WAIT_SECONDS
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


def fill(directory: Path) -> None:
    """Leave not one block free."""
    for size in (16 * MIB, MIB, 1 << 12):
        with (directory / f"ballast-{size}").open("wb") as ballast:
            try:
                for offset in range(0, SIZE, size):
                    os.posix_fallocate(ballast.fileno(), offset, size)
            except OSError:
                continue


def fill_inodes(directory: Path) -> None:
    """Leave not one inode free."""
    try:
        for number in range(INODES):
            (directory / f"file-{number}").touch()
    except OSError:
        return


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    config = {
        "evictionHard": {"nodefs.available": "25%", "nodefs.inodesFree": "20%"},
        "evictionPressureTransitionPeriod": "5s",
        "imageMinimumGCAge": "1s",
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


async def wait_read(cluster: Cluster, *names: str) -> None:
    """Wait until the pods are ready and the agent has read what they use: a pod without figures is evicted first."""
    await cluster.wait_ready(*names)

    async def read() -> bool:
        summary = await cluster.agent.get_json("/stats/summary") or {"pods": []}
        return {pod["podRef"]["name"] for pod in summary["pods"]} >= set(names)

    await cluster.wait_for(read, f"the usage of {', '.join(names)}")


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
    await wait_read(cluster, "grows", "within")
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
    allocate(disk_of(cluster) / "more", free.f_frsize * free.f_bavail - 85 * MIB)  # nothing is left to be removed
    status = (await wait_evicted(cluster, "grows"))["status"]
    assert status["reason"] == "Evicted"
    assert status["message"].startswith("The node was low on resource: ephemeral-storage. Threshold quantity: ")
    event = await cluster.wait_event_of("grows", "Evicted")
    assert event["metadata"]["annotations"]["starved_resource"] == "ephemeral-storage"
    within = await cluster.get_pod("within")
    assert within is not None and within["status"]["phase"] == "Running"
    await wait_pressure(cluster, "True")  # the Node may show it later than podsync acts, and "False" until then
    for name in ("ballast", "more"):
        (disk_of(cluster) / name).unlink()
    await wait_pressure(cluster, "False")


async def evicted_at(cluster: Cluster, name: str) -> datetime:
    """When the pod's event Evicted was recorded, to the second."""
    event = await cluster.wait_event_of(name, "Evicted")
    return datetime.fromisoformat(event["firstTimestamp"])


@pytest.mark.parametrize(("what", "resource"), [("bytes", "ephemeral-storage"), ("inodes", "inodes")])
async def test_with_0_free_bytes_or_inodes_the_agent_evicts_reports_and_recovers(
    cluster: Cluster, what: str, resource: str
) -> None:
    await wait_pressure(cluster, "False")
    calm, fills, after = f"calm-{what}", f"fills-{what}", f"after-{what}"
    await cluster.create(pod_with_files(cluster, calm, "100Mi"))
    await cluster.create(pod_with_files(cluster, fills))
    await wait_read(cluster, calm, fills)
    before = pids(cluster)
    pressure = asyncio.create_task(wait_pressure(cluster, "True"))  # which lasts for some seconds only
    (fill if what == "bytes" else fill_inodes)(await held_by(cluster, fills))
    free = os.statvfs(disk_of(cluster))
    assert (free.f_bavail if what == "bytes" else free.f_ffree) == 0
    status = (await wait_evicted(cluster, fills))["status"]
    assert status["reason"] == "Evicted"
    assert f"The node was low on resource: {resource}. " in status["message"]
    await pressure
    await wait_pressure(cluster, "False")
    pod = await cluster.get_pod(calm)
    assert pod is not None
    # A runtime on the full disk may need longer to end a pod than podsync waits before it evicts the next one.
    if pod["status"]["phase"] != "Running":
        assert await evicted_at(cluster, calm) - await evicted_at(cluster, fills) >= timedelta(
            seconds=eviction.MAX_WAIT_SECONDS - 1
        )
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
    await wait_read(cluster, *names)
    allocate(await held_by(cluster, "smaller") / "file", 20 * MIB)
    allocate(await held_by(cluster, "largest") / "file", 60 * MIB)
    free = os.statvfs(disk_of(cluster))
    allocate(disk_of(cluster) / "ballast", free.f_frsize * free.f_bavail - 85 * MIB)
    await agent.wait_for(
        lambda: "evicting largest_default" in agent.log_of("podsync"), "the eviction to begin", 2 * WAIT_SECONDS
    )
    agent.reset_start_counts()
    killed = {service: agent.kill(service) for service in ("podsync", "pleg")}
    for service, pid in killed.items():
        await agent.wait_back(service, pid)
    status = (await wait_evicted(cluster, "largest"))["status"]
    assert status["reason"] == "Evicted"
    await wait_pressure(cluster, "False")
    smaller = await cluster.get_pod("smaller")
    assert smaller is not None and smaller["status"]["phase"] == "Running"
    (disk_of(cluster) / "ballast").unlink()
