"""The claim of the design: any process may be killed, and the pod does not notice.

One agent for the whole file; every test leaves it whole. The kills are SIGKILL unless a test says otherwise.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from shared.cri.interface import RuntimeCallError
from shared.model.runtime import ContainerState, RuntimePod
from tests.world import World, busybox_pod
from tools.leftovers import shims_of

pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

BACK_WITHIN = 3.0  # seconds, from the kill to a beat of the next process
RUNS_WITHIN = 5.0  # seconds, from the return of a process to a running pod
CONTAINERD_WAITS = 5.0  # seconds for a shim, if nobody tells it to wait longer; then it kills the container


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(verbosity=6) as world:
        world.put_manifest("steady", busybox_pod("steady"))
        await world.wait_running("steady")
        yield world


@pytest.fixture(autouse=True)
def first_kill(world: World) -> None:
    """Each test kills as if nobody had before: the back-off of crash-looping processes has tests of its own."""
    world.forgive_starts()


async def instances(world: World, name: str) -> list[tuple[str, int, ContainerState]]:
    pod = await world.runtime_pod(name)
    return [(c.id, c.attempt, c.state) for c in pod.containers] if pod else []


def assert_one_container_per_attempt(pod: RuntimePod) -> None:
    attempts = [(c.name, c.attempt) for c in pod.containers]
    assert len(attempts) == len(set(attempts)), attempts


@pytest.mark.parametrize("service", SERVICES)
async def test_a_killed_process_is_back_within_three_seconds_and_the_container_is_the_same(
    world: World, service: str
) -> None:
    before = await instances(world, "steady")
    assert [state for _, _, state in before] == [ContainerState.RUNNING]
    killed_at = time.monotonic()
    pid = world.kill(service)
    await world.wait_back(service, pid, seconds=10)
    took = time.monotonic() - killed_at
    await world.wait_beats(*SERVICES)
    assert await instances(world, "steady") == before
    assert took < BACK_WITHIN, f"{service} was back after {took:.2f} s"


async def test_a_killed_containerd_is_back_and_the_container_is_the_same(world: World) -> None:
    before = await instances(world, "steady")
    pid = world.kill("containerd")
    await world.wait_for(lambda: world.pid_of("containerd") not in (0, pid), "containerd to come back", BACK_WITHIN)

    async def same() -> bool:
        try:
            return await instances(world, "steady") == before
        except Exception:
            return False

    await world.wait_for(same, "the same container to be listed", 10)
    world.put_manifest("after", busybox_pod("after"))
    await world.wait_running("after")
    world.remove_manifest("after")
    await world.wait_gone("after")


async def test_a_containerd_that_is_back_before_a_busy_shim_answers_leaves_the_container_alone(world: World) -> None:
    before = await instances(world, "steady")
    shims = shims_of(world.home.path)
    assert shims
    pid = world.kill("containerd")
    for shim in shims:
        os.kill(shim, signal.SIGSTOP)
    try:
        await world.wait_for(lambda: world.pid_of("containerd") not in (0, pid), "containerd to come back", 10)
        await asyncio.sleep(1.5 * CONTAINERD_WAITS)
    finally:
        for shim in shims:
            os.kill(shim, signal.SIGCONT)

    async def listed() -> list[tuple[str, int, ContainerState]]:
        try:
            return await instances(world, "steady")
        except RuntimeCallError:
            return []

    assert await world.wait_for(listed, "the container to be listed", 30) == before


@pytest.mark.parametrize("service", [name for name in SERVICES if name not in ("status", "server", "bootstrap")])
async def test_a_manifest_added_while_a_process_is_dead_runs_within_five_seconds_of_its_return(
    world: World, service: str
) -> None:
    pid = world.kill(service)
    name = f"during-{service}"
    world.put_manifest(name, busybox_pod(name))
    await world.wait_back(service, pid, seconds=10)
    await world.wait_running(name, seconds=RUNS_WITHIN)
    world.remove_manifest(name)
    await world.wait_gone(name)


@pytest.mark.parametrize("service", ["bootstrap", "status", "server"])
async def test_a_manifest_added_while_a_bystander_is_dead_runs_at_once(world: World, service: str) -> None:
    pid = world.kill(service)
    name = f"without-{service}"
    world.put_manifest(name, busybox_pod(name))
    await world.wait_running(name, seconds=RUNS_WITHIN)
    await world.wait_back(service, pid, seconds=10)
    world.remove_manifest(name)
    await world.wait_gone(name)


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
    await world.wait_back("podsync", pid, seconds=10)
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
    await world.wait_back("podsync", pid, seconds=10)
    await world.wait_gone(name)
    directory = Path(world.home.path) / "kubelet" / "pods" / running.uid
    await world.wait_for(lambda: not directory.exists(), f"{directory} to be removed")
    await world.wait_for(lambda: not _cgroups_of(running.uid), "the pod's cgroups to be removed")


def _cgroups_of(uid: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"*/**/pod{uid}"))


async def test_a_container_that_dies_is_running_again_after_every_process_was_killed_once(world: World) -> None:
    world.put_manifest("fragile", busybox_pod("fragile"))
    pod = await world.wait_running("fragile")
    for service in SERVICES:
        pid = world.kill(service)
        await world.wait_back(service, pid, seconds=10)
    os.kill(pod.containers[0].pid, signal.SIGKILL)

    async def again() -> bool:
        seen = await world.runtime_pod("fragile")
        newest = seen.containers[0] if seen else None
        return newest is not None and newest.state is ContainerState.RUNNING and newest.attempt == 1

    await world.wait_for(again, "attempt 1 to run")
    world.remove_manifest("fragile")
    await world.wait_gone("fragile")


async def test_all_seven_killed_at_once_come_back_and_the_container_is_the_same(world: World) -> None:
    before = await instances(world, "steady")
    pids = {service: world.kill(service) for service in SERVICES}
    await asyncio.gather(*(world.wait_back(service, pid, seconds=15) for service, pid in pids.items()))
    assert await instances(world, "steady") == before
    world.put_manifest("fresh", busybox_pod("fresh"))
    await world.wait_running("fresh")
    world.remove_manifest("fresh")
    await world.wait_gone("fresh")
