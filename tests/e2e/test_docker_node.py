"""A node whose pods run in Docker, behind the shim: what single calls do is in test_dockershim_contract."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.dockershim.adapters.engine import Engine
from shared.cri.interface import RuntimeCallError
from shared.model.runtime import ContainerState, RuntimePod
from tests.support.agents.world import World, busybox_pod
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

STARTS = (
    "sandbox.created",
    "sandbox.started",
    "network.recorded",
    "network.added",
    "container.created",
    "container.started",
)
ENDS = (
    "container.stopped",
    "sandbox.emptied",
    "network.deleted",
    "sandbox.stopped",
    "container.removed",
    "sandbox.removed",
)
EACH_DAY = ("network.added", "network.deleted")  # the others are killed at night


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(docker=True) as world:
        yield world


async def newest(world: World, name: str) -> RuntimePod:
    pod = await world.runtime_pod(name)
    assert pod is not None
    return pod


async def left_over(world: World) -> list[str]:
    """Return what Docker and the shim have of pods."""
    assert world.docker is not None
    engine = Engine(world.docker.endpoint)
    try:
        names = [listed["Names"][0] for listed in await engine.containers([])]
    finally:
        await engine.close()
    records = world.home.path / "dockershim" / "networks"
    addresses = world.docker.directory / "addresses" / world.docker.bridge
    return names + [file.name for file in records.iterdir()] + [file.name for file in addresses.glob("10.*")]


async def test_a_container_restarts_and_a_killed_shim_loses_no_line_of_its_log(world: World) -> None:
    count = "i=0; while true; do echo $((i+=1)); sleep 0.2; done"
    world.put_manifest("first", busybox_pod("first", "sh", "-c", count))
    pod = await world.wait_running("first")
    os.kill(pod.containers[0].pid, signal.SIGKILL)

    async def again() -> bool:
        container = (await newest(world, "first")).containers[0]
        return (container.attempt, container.state) == (1, ContainerState.RUNNING)

    await world.wait_for(again, "attempt 1 to run")
    running = (await newest(world, "first")).containers[0]
    log = Path(running.log_path)
    await world.wait_for(lambda: len(log.read_text().splitlines()) > 5, "lines of the log")
    pid = world.kill("dockershim")
    await world.wait_for(lambda: world.pid_of("dockershim") not in (0, pid), "the shim to come back")
    lines = len(log.read_text().splitlines())
    await world.wait_for(lambda: len(log.read_text().splitlines()) > lines + 5, "further lines of the log")
    words = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
    assert words == [str(number) for number in range(1, len(words) + 1)], "each line once"
    assert (await newest(world, "first")).containers[0].id == running.id
    world.remove_manifest("first")
    await world.wait_gone("first")


@pytest.mark.parametrize("removed", ["container", pytest.param("sandbox", marks=pytest.mark.night)])
async def test_a_pod_whose_container_or_sandbox_was_removed_by_hand_runs_again_and_leaves_no_network(
    world: World, removed: str
) -> None:
    assert world.docker is not None
    name = f"removed-{removed}"
    world.put_manifest(name, busybox_pod(name))
    before = await world.wait_running(name)
    container, sandbox = before.containers[0].id, before.sandboxes[0].id
    engine = Engine(world.docker.endpoint)
    try:
        await engine.remove(container if removed == "container" else sandbox)
    finally:
        await engine.close()

    async def again() -> bool:
        pod = await newest(world, name)
        running = [one for one in pod.containers if one.state is ContainerState.RUNNING]
        return [one.id == container for one in running] == [False] and bool(pod.sandboxes[0].ips)

    await world.wait_for(again, "another container to run")
    pod = await newest(world, name)
    assert (pod.sandboxes[0].id == sandbox) == (removed == "container")
    records = world.home.path / "dockershim" / "networks"
    await world.wait_for(
        lambda: [file.stem for file in records.iterdir()] == [pod.sandboxes[0].id],
        "the network of the removed sandbox to be released",
        2 * WAIT_SECONDS,
    )
    world.remove_manifest(name)
    await world.wait_gone(name)
    await world.wait_for(lambda: not list(records.iterdir()), "no network to be left")


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=[] if point in EACH_DAY else pytest.mark.night) for point in (*STARTS, *ENDS)],
)
async def test_a_shim_that_is_killed_in_a_start_or_an_end_leaves_what_it_would_have_left(
    world: World, point: str
) -> None:
    name = point.replace(".", "-")
    world.reset_start_counts()
    if point in STARTS:
        world.crash_at(f"dockershim.{point}")
    world.put_manifest(name, busybox_pod(name))
    await world.wait_running(name)
    if point in ENDS:
        world.crash_at(f"dockershim.{point}")
    world.remove_manifest(name)
    await world.wait_for(lambda: world.crashed, f"the shim to be killed at {point}")

    async def gone() -> bool:
        try:
            return await world.runtime_pod(name) is None and not await left_over(world)
        except RuntimeCallError:
            return False  # the shim is on its way back

    await world.wait_for(gone, "nothing of the pod to be left")
