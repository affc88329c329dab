"""A containerd that was killed is back before its shims answer."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.cri.interface import RuntimeCallError
from shared.model.runtime import ContainerState
from tests.support.agents.world import World, busybox_pod
from tests.support.waits.stopped import wait_stopped
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
        wait_stopped(shim)
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
