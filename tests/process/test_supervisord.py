"""supervisord itself is only one more process: stopped, killed and replaced, it takes no service and no pod with it."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from tests.support.agents.world import ExecutedWorld, World, busybox_pod

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

PODS = 5  # that start while supervisord is stopped; every service has something to log about each


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with ExecutedWorld(verbosity=6) as world:
        world.put_manifest("steady", busybox_pod("steady"))
        await world.wait_running("steady")
        yield world


async def container_ids(world: World) -> list[str]:
    pod = await world.runtime_pod("steady")
    return [c.id for c in pod.containers] if pod else []


def is_running(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_stopped_supervisord_stops_no_service(world: World) -> None:
    world.kill("supervisord", signal.SIGSTOP)
    try:
        for number in range(PODS):
            world.put_manifest(f"busy-{number}", busybox_pod(f"busy-{number}"))
            await world.wait_running(f"busy-{number}")
        await world.wait_beats(*SERVICES)
    finally:
        world.kill("supervisord", signal.SIGCONT)
    for number in range(PODS):
        world.remove_manifest(f"busy-{number}")
        await world.wait_gone(f"busy-{number}")


async def test_restarting_one_service_by_supervisorctl_leaves_the_others_and_the_pod_alone(world: World) -> None:
    before, ids = {name: world.pid_of(name) for name in SERVICES}, await container_ids(world)
    world.supervisorctl("restart", "pleg")
    await world.wait_back("pleg", before["pleg"])
    assert {name for name in SERVICES if world.pid_of(name) != before[name]} == {"pleg"}
    assert await container_ids(world) == ids


async def test_without_supervisord_the_orphans_work_on_and_the_next_one_replaces_them(world: World) -> None:
    before, ids = {name: world.pid_of(name) for name in SERVICES}, await container_ids(world)
    containerd = world.pid_of("containerd")
    world.kill("supervisord")
    await world.wait_beats(*SERVICES)
    assert {name: world.pid_of(name) for name in SERVICES} == before, "the orphans work on"
    world.put_manifest("later", busybox_pod("later"))
    await world.wait_running("later")

    world.start_supervisord()
    for name, orphan in before.items():
        await world.wait_back(name, orphan)

    def left() -> list[str]:
        return [name for name, pid in before.items() if is_running(pid)]

    # They free their locks before they end.
    await world.wait_for(lambda: not left(), lambda: f"{left()} of the first generation to end")
    assert world.pid_of("containerd") == containerd
    assert await container_ids(world) == ids

    world.remove_manifest("later")
    await world.wait_gone("later")
    pod = await world.runtime_pod("steady")
    assert pod is not None
    await world.stop_supervisord()
    assert not is_running(containerd)
    assert is_running(pod.containers[0].pid), "the pod did not outlive the stop"

    await world.start()
    assert await container_ids(world) == ids
