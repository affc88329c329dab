"""podsync killed at each crash point of a start and of an end, with a real runtime: no second container, nothing left.

One agent for all tests of the file.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.model.runtime import ContainerState, RuntimePod
from tests.support.agents.world import World, busybox_pod
from tools import leftovers

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(verbosity=6) as world:
        yield world


@pytest.fixture(autouse=True)
def first_kill(world: World) -> None:
    """Each kill counts as the first one: the back-off of crash-looping processes has tests of its own."""
    world.reset_start_counts()


def assert_one_container_per_attempt(pod: RuntimePod) -> None:
    attempts = [(c.name, c.attempt) for c in pod.containers]
    assert len(attempts) == len(set(attempts)), attempts


CREATING = ("RunPodSandbox", "CreateContainer", "StartContainer")
POINTS = [
    *(f"podsync.{point}.{call}" for point in ("calling", "acted") for call in CREATING),
    "podsync.saved.RunPodSandbox",
    "podsync.saved.CreateContainer",
    "podsync.saved.StartContainer",
    "podsync.published.LookAtPod",
    "podsync.published.StartContainer",
]


@pytest.mark.parametrize("point", POINTS)
async def test_podsync_killed_anywhere_in_a_start_ends_with_one_running_container_of_attempt_zero(
    world: World, point: str
) -> None:
    name = point.replace(".", "-").lower()
    pid = world.pid_of("podsync")
    world.crash_at(point)
    world.put_manifest(name, busybox_pod(name))
    await world.wait_for(lambda: world.crashed, f"podsync to reach {point}")
    await world.wait_back("podsync", pid)
    pod = await world.wait_running(name)
    await world.wait_for(lambda: _settled(world, name), f"pod {name} to be shown as running")
    assert [(c.attempt, c.state) for c in pod.containers] == [(0, ContainerState.RUNNING)]
    assert_one_container_per_attempt(pod)
    world.remove_manifest(name)
    await world.wait_gone(name)


async def _settled(world: World, name: str) -> bool:
    pod = await world.pod(name)
    return bool(pod) and pod is not None and pod["status"].get("phase") == "Running"


ENDING = [
    "podsync.saved.KillPod",
    "podsync.published.KillPod",
    "podsync.calling.KillPod",
    "podsync.acted.KillPod",
    "podsync.acted.ReleasePod",
    "podsync.acted.RemoveContainers",
]


@pytest.mark.parametrize("point", ENDING)
async def test_podsync_killed_anywhere_in_an_end_leaves_nothing_of_the_pod(world: World, point: str) -> None:
    name = point.replace(".", "-").lower()
    world.put_manifest(name, busybox_pod(name))
    running = await world.wait_running(name)
    pid = world.pid_of("podsync")
    world.crash_at(point)
    world.remove_manifest(name)
    await world.wait_for(lambda: world.crashed, f"podsync to reach {point}")
    await world.wait_back("podsync", pid)
    await world.wait_gone(name)
    directory = Path(world.home.path) / "kubelet" / "pods" / running.uid
    await world.wait_for(lambda: not directory.exists(), f"{directory} to be removed")
    await world.wait_for(lambda: not _cgroups_of(running.uid), "the pod's cgroups to be removed")


def _cgroups_of(uid: str) -> list[str]:
    """By os.walk, which bears that others vanish meanwhile."""
    return [top for top, _, _ in os.walk(leftovers.CGROUPS) if top.endswith(f"/pod{uid}")]
