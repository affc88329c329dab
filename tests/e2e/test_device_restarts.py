"""Pods keep their devices on a real containerd through kills and restarts: no device is given twice, none is lost, and
no pod is rejected because a plugin comes back late (kubernetes #128043)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.cli.agent.local_agent import local_agent
from shared.model.objects import Object
from shared.model.runtime import Container
from tests.programs.device_plugin import DevicePlugin
from tests.programs.running import running_program
from tests.support.agents.world import World, busybox_pod

pytestmark = [pytest.mark.root, pytest.mark.asyncio, pytest.mark.timeout(300)]

GPU = "example.com/gpu"
IDS = [f"gpu-{number}" for number in range(10)]
CRASH_POINTS = {
    "saved": "podsync.saved.AllocatePodDevices",
    "published": "podsync.published.AllocatePodDevices",
    "calling": "podsync.calling.AllocatePodDevices",
    "acted": "podsync.acted.AllocatePodDevices",
}


def pod_with_device(name: str) -> Object:
    pod = busybox_pod(name)
    pod["spec"]["containers"][0]["resources"] = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    return pod


@contextmanager
def plugin_process(world: World) -> Iterator[DevicePlugin]:
    """Run the node's plugin, and yield its files, with which its faults are switched."""
    directory = world.home.path / "kubelet" / "device-plugins"
    with running_program("device_plugin", str(directory), GPU, "--ids", ",".join(IDS)):
        yield DevicePlugin(directory, GPU, dict.fromkeys(IDS, ("Healthy", ())))


async def wait_known(world: World) -> None:
    """Wait until the node has the devices: as with the kubelet, a pod gets none of a resource that no plugin has
    registered, and runs."""

    def amount() -> str:
        with local_agent(str(world.home.run_dir)) as agent:
            resources = agent.streams("node.resources")["node.resources"] or {}
        return str(resources.get("node", {}).get("allocatable", {}).get(GPU))

    async def known() -> bool:
        return await asyncio.to_thread(amount) == str(len(IDS))

    await world.wait_for(known, f"the node to have {len(IDS)} {GPU}")


async def device_of(world: World, container: Container) -> str:
    """Return the device that the environment of the container's first process names, once its program is executed."""

    def named() -> str:
        environment = Path(f"/proc/{container.pid}/environ").read_bytes().split(b"\0")
        return "".join(entry.partition(b"=")[2].decode() for entry in environment if entry.startswith(b"GPU_IDS="))

    return await world.wait_for(named, f"process {container.pid} to have a device in its environment")


async def start_pod(world: World, name: str) -> Container:
    world.put_manifest(name, pod_with_device(name))
    return (await world.wait_running(name)).containers[0]


async def wait_same(world: World, before: dict[str, Container]) -> None:
    """Wait until the agent shows these pods as ready; their containers must be the same ones."""
    await world.wait_served(*before)
    for name, container in before.items():
        [found] = (await world.wait_running(name)).containers
        assert (found.id, found.started_at) == (container.id, container.started_at), name


async def test_no_pod_fails_when_the_agent_restarts_and_the_plugin_comes_back_late() -> None:
    async with World() as world:
        names = [f"p{number}" for number in range(8)]
        with plugin_process(world):
            await wait_known(world)
            before = {name: await start_pod(world, name) for name in names}
        devices = {name: await device_of(world, container) for name, container in before.items()}
        assert len(set(devices.values())) == 8
        await world.stop_supervisord()
        await world.start()
        await wait_same(world, before)
        world.put_manifest("late", pod_with_device("late"))

        async def late_waits() -> bool:
            pod = await world.pod("late")
            conditions = (pod or {}).get("status", {}).get("conditions") or ()
            return any(GPU in condition.get("message", "") for condition in conditions)

        await world.wait_for(late_waits, "the condition of the new pod to name the resource that it waits for")
        with plugin_process(world):
            late = (await world.wait_running("late")).containers[0]
            assert await device_of(world, late) not in devices.values()
            await wait_same(world, {**before, "late": late})
        failed = [pod["metadata"]["name"] for pod in await world.pods() if pod["status"].get("phase") == "Failed"]
        assert failed == []


async def test_each_device_has_one_container_after_kills_at_each_step_and_plugins_that_are_slow_or_die() -> None:
    async with World() as world:
        with plugin_process(world) as plugin:
            await wait_known(world)
            before = {"first": await start_pod(world, "first")}
            for step, point in CRASH_POINTS.items():
                plugin.fault("Allocate", "slow" if step == "calling" else "")
                old = world.pid_of("podsync")
                world.crash_at(point)
                world.put_manifest(step, pod_with_device(step))
                await world.wait_back("podsync", old)
                assert world.crashed, step
                before[step] = (await world.wait_running(step)).containers[0]
            plugin.fault("Allocate", "slow")
            count = len(plugin.calls("Allocate"))
            world.put_manifest("volume", pod_with_device("volume"))
            await world.wait_for(lambda: len(plugin.calls("Allocate")) > count, "the plugin to be called")
            await world.wait_back("volume", world.kill("volume"))
            before["volume"] = (await world.wait_running("volume")).containers[0]
            plugin.fault("Allocate", "die")
            count = len(plugin.calls("Allocate"))
            world.put_manifest("dead", pod_with_device("dead"))
            await world.wait_for(lambda: len(plugin.calls("Allocate")) > count, "the plugin to be called, and to die")
        plugin.fault("Allocate")
        with plugin_process(world):
            before["dead"] = (await world.wait_running("dead")).containers[0]
            await wait_same(world, before)
        devices = {name: await device_of(world, container) for name, container in before.items()}
        assert len(set(devices.values())) == len(before) == 7
