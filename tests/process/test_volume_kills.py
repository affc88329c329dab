"""Kills with data at stake: what a pod has written to its volumes outlives every process, and nothing outlives the pod.

One agent for all tests of the file; every test leaves it intact. The kills are SIGKILL.
"""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from services.volume.adapters.mounts import mount_table
from services.volume.core.orphans import ORPHAN_GRACE
from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.support.agents.world import World, busybox_pod
from tools.containerd import answers

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

DIRECTORIES = ("disk", "memory")  # of the pod's volumes, by name
WRITE_ONCE = (
    "for d in /disk /memory; do [ -e $d/born ] || cat /proc/sys/kernel/random/uuid >$d/born; done; sleep 1000000"
)


def writing_pod(name: str) -> Object:
    """A pod that writes a random line into each of its two emptyDirs, unless there is one."""
    volumes = [{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]
    pod = busybox_pod(name, "sh", "-c", WRITE_ONCE, volumes=volumes)
    [container] = pod["spec"]["containers"]
    container["volumeMounts"] = [{"name": name, "mountPath": f"/{name}"} for name in DIRECTORIES]
    return pod


def pod_directory(world: World, uid: str) -> Path:
    return world.home.path / "kubelet" / "pods" / uid


async def data(world: World, name: str) -> dict[str, str]:
    """Container, and what is in its volumes: as it sees them itself, and as they lie on the node."""
    pod = await world.wait_running(name)
    seen = {"container": pod.containers[0].id}
    for volume in DIRECTORIES:
        inside = Path(f"/proc/{pod.containers[0].pid}/root/{volume}/born")
        outside = pod_directory(world, pod.uid) / "volumes" / "kubernetes.io~empty-dir" / volume / "born"
        seen[f"{volume} inside"] = inside.read_text() if inside.exists() else "lost"
        seen[f"{volume} outside"] = outside.read_text() if outside.exists() else "lost"
    return seen


async def written(world: World, name: str) -> dict[str, str]:
    """The same, once everything is written."""

    async def all_there() -> dict[str, str] | None:
        seen = await data(world, name)
        return seen if all(line.strip() and line != "lost" for line in seen.values()) else None

    return await world.wait_for(all_there, f"pod {name} to have written its files")


async def outlast_the_grace(world: World) -> None:
    """What would be taken for an orphan now is gone afterwards; only time shows that it was not."""
    await world.wait_beats(*SERVICES, after=time.monotonic() + ORPHAN_GRACE + 1)


def left_of(world: World, uid: str) -> list[str]:
    """Directories, mounts and cgroups of the pod."""
    mounts = [mount.path for mount in mount_table() if uid in mount.path]
    directories = (world.home.path / "kubelet" / "pods").glob(f"*{uid}*")
    cgroups = [top for top, _, _ in os.walk("/sys/fs/cgroup") if top.endswith(f"/pod{uid}")]  # others vanish meanwhile
    return [*mounts, *map(str, directories), *cgroups]


async def end(world: World, name: str) -> None:
    """Take the manifest away and see that nothing of the pod stays."""
    pod = await world.runtime_pod(name)
    assert pod is not None
    world.remove_manifest(name)
    await world.wait_gone(name)
    await world.wait_for(lambda: not left_of(world, pod.uid), lambda: f"an end of {left_of(world, pod.uid)}")


async def lose_the_records_of_podsync(world: World) -> None:
    """Kill podsync, remove its checkpoint directory while it is dead, and wait for the next one."""
    world.kill("supervisord", signal.SIGSTOP)  # or the next one would be there before the directory is gone
    try:
        pid = world.kill("podsync")
        await world.wait_for(lambda: _is_dead(pid), "podsync to be dead")
        shutil.rmtree(world.home.path / "kubelet" / "bulkhead" / "podsync")
    finally:
        world.kill("supervisord", signal.SIGCONT)
    await world.wait_back("podsync", pid)


def _is_dead(pid: int) -> bool:
    """Killed; its parent, which is stopped, need not know yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(verbosity=6) as world:
        world.put_manifest("steady", writing_pod("steady"))
        await written(world, "steady")
        yield world


@pytest.fixture(autouse=True)
def first_kill(world: World) -> None:
    """Each test kills as if it were the first: the back-off of crash-looping processes has tests of its own."""
    world.reset_start_counts()


@pytest.mark.parametrize("service", SERVICES)
async def test_what_a_pod_has_written_outlives_each_process(world: World, service: str) -> None:
    before = await written(world, "steady")
    pid = world.kill(service)
    await world.wait_back(service, pid)
    await (outlast_the_grace(world) if service in ("podsync", "volume") else world.wait_beats(*SERVICES))
    assert await data(world, "steady") == before


async def test_what_a_pod_has_written_outlives_all_seven_at_once(world: World) -> None:
    before = await written(world, "steady")
    pids = {service: world.kill(service) for service in SERVICES}
    await asyncio.gather(*(world.wait_back(service, pid) for service, pid in pids.items()))
    await outlast_the_grace(world)
    assert await data(world, "steady") == before


async def test_what_a_pod_has_written_outlives_the_records_of_podsync(world: World) -> None:
    before = await written(world, "steady")
    await lose_the_records_of_podsync(world)
    await outlast_the_grace(world)
    assert await data(world, "steady") == before
    world.put_manifest("later", writing_pod("later"))  # and podsync is at work again
    await written(world, "later")
    await end(world, "later")


async def test_a_pod_adopted_without_records_ends_and_leaves_nothing(world: World) -> None:
    world.put_manifest("adopted", writing_pod("adopted"))
    await written(world, "adopted")
    await lose_the_records_of_podsync(world)
    await end(world, "adopted")


@pytest.mark.parametrize("point", ["volume.calling.MountVolume", "volume.acted.MountVolume"])
async def test_volume_killed_in_a_start_mounts_all_and_the_pod_runs(world: World, point: str) -> None:
    name = point.replace(".", "-").lower()
    pid = world.pid_of("volume")
    world.crash_at(point)
    world.put_manifest(name, writing_pod(name))
    await world.wait_for(lambda: world.crashed, f"volume to reach {point}")
    await world.wait_back("volume", pid)
    pod = await world.wait_running(name)
    await written(world, name)
    assert [(c.attempt, c.state) for c in pod.containers] == [(0, ContainerState.RUNNING)]
    await end(world, name)


@pytest.mark.parametrize("point", ["volume.calling.MakePodDirectories", "volume.acted.MakePodDirectories"])
async def test_volume_killed_in_the_start_of_a_pod_without_volumes_does_not_matter(world: World, point: str) -> None:
    name = point.replace(".", "-").lower()
    pid = world.pid_of("volume")
    world.crash_at(point)
    world.put_manifest(name, busybox_pod(name))
    await world.wait_for(lambda: world.crashed, f"volume to reach {point}")
    await world.wait_running(name)
    await world.wait_back("volume", pid)
    await end(world, name)


ENDING = [
    f"volume.{point}.{call}" for call in ("UnmountVolume", "RemovePodDirectory") for point in ("calling", "acted")
]


@pytest.mark.parametrize("point", ENDING)
async def test_volume_killed_in_an_end_leaves_nothing_of_the_pod(world: World, point: str) -> None:
    name = point.replace(".", "-").lower()
    world.put_manifest(name, writing_pod(name))
    await written(world, name)
    pid = world.pid_of("volume")
    world.crash_at(point)
    ending = asyncio.create_task(end(world, name))
    await world.wait_for(lambda: world.crashed, f"volume to reach {point}")
    await world.wait_back("volume", pid)
    await ending


@pytest.mark.parametrize("point", ["sources.saved", "sources.published"])
async def test_sources_killed_with_a_new_manifest_in_hand_runs_it_once(world: World, point: str) -> None:
    name = point.replace(".", "-")
    pid = world.pid_of("sources")
    world.crash_at(point)
    world.put_manifest(name, writing_pod(name))
    await world.wait_for(lambda: world.crashed, f"sources to reach {point}")
    await world.wait_back("sources", pid)
    pod = await world.wait_running(name)
    assert [(c.attempt, c.state) for c in pod.containers] == [(0, ContainerState.RUNNING)]
    assert len(pod.sandboxes) == 1
    await end(world, name)


async def test_a_manifest_added_while_containerd_is_dead_runs_after_its_return(world: World) -> None:
    pid = world.kill("containerd")
    world.put_manifest("meanwhile", writing_pod("meanwhile"))
    await world.wait_for(lambda: world.pid_of("containerd") not in (0, pid), "containerd to come back")
    await world.wait_for(lambda: answers(world.containerd_socket), "containerd to answer")
    await world.wait_running("meanwhile")
    await written(world, "meanwhile")
    await end(world, "meanwhile")
