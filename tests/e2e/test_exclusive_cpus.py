"""Whole CPUs for a container of a Guaranteed pod on a real containerd: what the kernel lets each container run on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.cpu_state import CpuState
from shared.config.loader import load_effective
from shared.model.cpu_list import parse_cpus, write_cpus
from shared.model.objects import Object
from shared.model.runtime import Container, ContainerState, RuntimePod
from tests.support.agents.world import World, busybox_pod
from tests.support.installed.lacking import lack

pytestmark = [pytest.mark.root, pytest.mark.asyncio, pytest.mark.timeout(300)]

STATIC = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "100m"}}
ONLINE = parse_cpus(Path("/sys/devices/system/cpu/online").read_text()) or frozenset()
OWN = {"cpu": "1", "memory": "16Mi"}


def asking(name: str, resources: Object) -> Object:
    pod = busybox_pod(name)
    pod["spec"]["containers"][0]["resources"] = resources
    return pod


def cpus_of(container: Container) -> frozenset[int]:
    """Return the CPUs on which the kernel lets the container's first process run."""
    return frozenset(os.sched_getaffinity(container.pid))


async def cpus_inside(world: World, container: Container) -> str:
    """Return the CPUs on which a process that is started in the container now may run."""
    answer = await world.runtime.exec_sync(container.id, ["grep", "Cpus_allowed_list", "/proc/self/status"], timeout=60)
    return answer.stdout.decode().split()[-1]


async def test_no_container_runs_on_the_cpu_of_another_before_during_and_after_kills_of_podsync() -> None:
    if len(ONLINE) < 2:
        lack("one CPU, and a CPU of its own for a container takes two")
    async with World(config=STATIC) as world:
        world.put_manifest("shared", asking("shared", {"requests": {"cpu": "100m"}}))
        shared = (await world.wait_running("shared")).containers[0]
        assert cpus_of(shared) == ONLINE

        for point in ("saved.SetContainerCpus", "published.SetContainerCpus", "acted.SetContainerCpus"):
            name = point.partition(".")[0]
            old = world.pid_of("podsync")
            world.crash_at(f"podsync.{point}")
            world.put_manifest(name, asking(name, {"requests": OWN, "limits": OWN}))
            await world.wait_back("podsync", old)
            assert world.crashed
            given = cpus_of((await world.wait_running(name)).containers[0])
            assert (len(given), cpus_of(shared)) == (1, ONLINE - given), point
            world.remove_manifest(name)
            await world.wait_gone(name)
            await world.wait_for(_has(shared, ONLINE), "the freed CPU to be shared again")

        world.put_manifest("own", asking("own", {"requests": OWN, "limits": OWN}))
        own = (await world.wait_running("own")).containers[0]
        given = cpus_of(own)
        assert (len(given), cpus_of(shared)) == (1, ONLINE - given)
        assert await cpus_inside(world, own) == write_cpus(given)
        assert await cpus_inside(world, shared) == write_cpus(ONLINE - given)

        await world.wait_back("podsync", world.kill("podsync"))
        await world.wait_served("own", "shared")
        for pod_name, before in (("own", own), ("shared", shared)):
            [after] = (await world.wait_running(pod_name)).containers
            assert (after.id, after.started_at) == (before.id, before.started_at)
        assert (cpus_of(own), cpus_of(shared)) == (given, ONLINE - given)

        uid = (await world.wait_running("own")).uid
        files = PlacementFiles(Path(load_effective(str(world.home.run_dir)).root_dir))
        state = CpuState(policy="static", shared_pool=ONLINE - given, containers={uid: {"main": given}})
        await world.wait_for(lambda: files.read_cpu() == state, "the file to show it")

        world.put_manifest("late", asking("late", {}))
        late = (await world.wait_running("late")).containers[0]
        assert cpus_of(late) == ONLINE - given
        free = CpuState(policy="static", shared_pool=ONLINE)
        world.remove_manifest("own")
        await world.wait_gone("own")
        await world.wait_for(_has(shared, ONLINE), "the freed CPU to be shared again")
        await world.wait_for(_has(late, ONLINE), "the same")
        await world.wait_for(lambda: files.read_cpu() == free, "the file to show it")


async def test_the_containers_of_a_pod_with_resources_of_its_own_share_its_cpus_and_no_other_runs_on_them() -> None:
    if len(ONLINE) < 2:
        lack("one CPU, and a CPU of its own for a pod takes two")
    by_pod = {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}
    async with World(config={**STATIC, **by_pod, "featureGates": {"PodLevelResourceManagers": True}}) as world:
        world.put_manifest("shared", asking("shared", {"requests": {"cpu": "100m"}}))
        shared = (await world.wait_running("shared")).containers[0]
        pod = busybox_pod("whole")
        main = pod["spec"]["containers"][0]
        pod["spec"] |= {"containers": [main, {**main, "name": "helper"}], "resources": {"requests": OWN, "limits": OWN}}
        world.put_manifest("whole", pod)
        whole = await both_running(world, "whole")
        [given] = {cpus_of(container) for container in whole.containers}
        assert (len(given), cpus_of(shared)) == (1, ONLINE - given)
        for container in whole.containers:
            assert await cpus_inside(world, container) == write_cpus(given)

        await world.wait_back("podsync", world.kill("podsync"))
        await world.wait_served("whole", "shared")
        after = await both_running(world, "whole")
        assert {(one.id, cpus_of(one)) for one in after.containers} == {(one.id, given) for one in whole.containers}
        assert cpus_of(shared) == ONLINE - given

        files = PlacementFiles(Path(load_effective(str(world.home.run_dir)).root_dir))
        containers = {whole.uid: {"main": given, "helper": given}}
        shown = CpuState(policy="static", shared_pool=ONLINE - given, containers=containers, pods={whole.uid: given})
        await world.wait_for(lambda: files.read_cpu() == shown, "the file to show it")
        world.remove_manifest("whole")
        await world.wait_gone("whole")
        await world.wait_for(_has(shared, ONLINE), "the freed CPU to be shared again")


async def both_running(world: World, name: str) -> RuntimePod:
    """Return the static pod once both of its containers run."""

    async def look() -> RuntimePod | None:
        pod = await world.runtime_pod(name)
        running = [one for one in pod.containers if one.state is ContainerState.RUNNING] if pod is not None else []
        return pod if len(running) == 2 else None

    return await world.wait_for(look, f"both containers of {name} to run")


def _has(container: Container, cpus: frozenset[int]) -> Callable[[], bool]:
    return lambda: cpus_of(container) == cpus
