"""What the kill matrix does not have: manifests added while a process is dead, a container that ends after many kills,
a containerd that returns before its shims. One agent for all tests of the file; a kill is SIGKILL.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from shared.cri.interface import RuntimeCallError
from shared.model.runtime import ContainerState
from tests.support.agents.world import World, busybox_pod
from tools.leftovers import shims_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.versions,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

CONTAINERD_WAITS = 5.0  # seconds for a shim, by default; then it kills the container


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(verbosity=6) as world:
        world.put_manifest("steady", busybox_pod("steady"))
        await world.wait_running("steady")
        yield world


@pytest.fixture(autouse=True)
def first_kill(world: World) -> None:
    """Each kill counts as the first one: the back-off of crash-looping processes has tests of its own."""
    world.reset_start_counts()


async def instances(world: World, name: str) -> list[tuple[str, int, ContainerState]]:
    pod = await world.runtime_pod(name)
    return [(c.id, c.attempt, c.state) for c in pod.containers] if pod else []


async def test_a_containerd_that_is_back_before_a_busy_shim_answers_leaves_the_container_alone(world: World) -> None:
    before = await instances(world, "steady")
    shims = shims_of(world.home.path)
    assert shims
    pid = world.kill("containerd")
    for shim in shims:
        os.kill(shim, signal.SIGSTOP)
    try:
        await world.wait_for(lambda: world.pid_of("containerd") not in (0, pid), "containerd to come back")
        await asyncio.sleep(1.5 * CONTAINERD_WAITS)
    finally:
        for shim in shims:
            os.kill(shim, signal.SIGCONT)

    async def listed() -> list[tuple[str, int, ContainerState]]:
        try:
            return await instances(world, "steady")
        except RuntimeCallError:
            return []

    assert await world.wait_for(listed, "the container to be listed") == before


@pytest.mark.parametrize("service", [name for name in SERVICES if name not in ("status", "server", "bootstrap")])
async def test_a_manifest_added_while_a_process_is_dead_runs_after_its_return(world: World, service: str) -> None:
    pid = world.kill(service)
    name = f"during-{service}"
    world.put_manifest(name, busybox_pod(name))
    await world.wait_back(service, pid)
    await world.wait_running(name)
    world.remove_manifest(name)
    await world.wait_gone(name)


@pytest.mark.parametrize("service", ["bootstrap", "status", "server"])
async def test_a_manifest_added_while_a_bystander_is_dead_runs(world: World, service: str) -> None:
    pid = world.kill(service)
    name = f"without-{service}"
    world.put_manifest(name, busybox_pod(name))
    await world.wait_running(name)
    await world.wait_back(service, pid)
    world.remove_manifest(name)
    await world.wait_gone(name)


async def test_a_container_that_dies_is_running_again_after_every_process_was_killed_once(world: World) -> None:
    world.put_manifest("fragile", busybox_pod("fragile"))
    pod = await world.wait_running("fragile")
    for service in SERVICES:
        pid = world.kill(service)
        await world.wait_back(service, pid)
    os.kill(pod.containers[0].pid, signal.SIGKILL)

    async def again() -> bool:
        seen = await world.runtime_pod("fragile")
        newest = seen.containers[0] if seen else None
        return newest is not None and newest.state is ContainerState.RUNNING and newest.attempt == 1

    await world.wait_for(again, "attempt 1 to run")
    world.remove_manifest("fragile")
    await world.wait_gone("fragile")
