"""Kills with a part of a volume half bound: the pod runs all the same, and nothing stays bound after it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.volume.adapters.mounts import mount_table
from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.support.agents.world import World, busybox_pod

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

POINTS = [f"volume.subpath.{step}" for step in ("opened", "target", "bound", "unmounted")]


def pod_with_parts(name: str, host: Path) -> Object:
    """A pod with a part of its own volume and one of a directory of the node."""
    volumes = [{"name": "own", "emptyDir": {}}, {"name": "host", "hostPath": {"path": str(host)}}]
    pod = busybox_pod(name, "sh", "-c", "echo kept > /host/file; sleep 1000000", volumes=volumes)
    [container] = pod["spec"]["containers"]
    container["volumeMounts"] = [
        {"name": volume, "mountPath": f"/{volume}", "subPath": f"deep/{name}"} for volume in ("own", "host")
    ]
    return pod


def left_of(world: World, uid: str) -> list[str]:
    mounts = [mount.path for mount in mount_table() if uid in mount.path]
    return [*mounts, *map(str, (world.home.path / "kubelet" / "pods").glob(f"*{uid}*"))]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world


@pytest.mark.parametrize("point", POINTS)
async def test_volume_killed_with_a_part_half_bound(world: World, tmp_path: Path, point: str) -> None:
    world.reset_start_counts()
    name = point.replace(".", "-")
    pid = world.pid_of("volume")
    world.crash_at(point)
    world.put_manifest(name, pod_with_parts(name, tmp_path))
    await world.wait_for(lambda: world.crashed, f"volume to reach {point}")
    await world.wait_back("volume", pid)
    pod = await world.wait_running(name)
    assert [(c.attempt, c.state) for c in pod.containers] == [(0, ContainerState.RUNNING)]
    kept = tmp_path / "deep" / name / "file"
    await world.wait_for(lambda: kept.exists() and kept.read_text(), "the pod to have written")
    world.remove_manifest(name)
    await world.wait_gone(name)
    await world.wait_for(lambda: not left_of(world, pod.uid), lambda: f"an end of {left_of(world, pod.uid)}")
    assert kept.read_text() == "kept\n"


async def test_podsync_killed_before_it_lets_go_leaves_nothing(world: World, tmp_path: Path) -> None:
    world.reset_start_counts()
    pid = world.pid_of("podsync")
    world.crash_at("podsync.calling.StartContainer")
    world.put_manifest("parts-kept", pod_with_parts("parts-kept", tmp_path))
    await world.wait_for(lambda: world.crashed, "podsync to be killed")
    await world.wait_back("podsync", pid)
    pod = await world.wait_running("parts-kept")
    world.remove_manifest("parts-kept")
    await world.wait_gone("parts-kept")
    await world.wait_for(lambda: not left_of(world, pod.uid), lambda: f"an end of {left_of(world, pod.uid)}")
