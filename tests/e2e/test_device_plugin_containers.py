"""Containers get devices of a device plugin on a real containerd, through kills of podsync. The plugin is called before
each start; a device that becomes unhealthy restarts its container or, in a cluster, ends its pod."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from services.bootstrap.core.containerd_config import read_version
from services.cli.agent.local_agent import local_agent
from shared.config.loader import load_effective
from shared.model.device_action import DEVICE_ACTION_ANNOTATION
from shared.model.objects import Object
from shared.model.runtime import Container
from tests.programs.device_plugin import DevicePlugin, devices_of
from tests.programs.running import running_program
from tests.support.agents.agent import Agent
from tests.support.agents.world import World, busybox_pod
from tests.support.clusters.cluster import Cluster
from tests.support.installed.chosen_programs import first_line

pytestmark = [pytest.mark.root, pytest.mark.asyncio, pytest.mark.timeout(300)]

CDI = Path("/var/run/cdi")  # where containerd looks for specifications by itself


@contextmanager
def plugin_of(agent: Agent, *options: str) -> Iterator[DevicePlugin]:
    """Run a plugin with the devices a and b as a process, and yield its files. The resource has the name of the agent's
    directory, so that no other test writes the same CDI specification. "gpu" follows, because the name of a directory
    may end with "_", and that of a resource may not."""
    directory = Path(load_effective(str(agent.home.run_dir)).root_dir) / "device-plugins"
    resource = f"example.com/{agent.home.path.name}gpu"
    plugin = DevicePlugin(directory, resource, devices_of("a", "b"))
    try:
        with running_program("device_plugin", str(directory), resource, "--ids", "a,b", *options):
            yield plugin
    finally:
        if "--cdi" in options:  # its directory stays: another test's plugin may write into it now
            (CDI / f"{resource.replace('/', '-')}.json").unlink(missing_ok=True)


async def wait_known(world: World, plugin: DevicePlugin) -> None:
    """Wait until the node has both devices. Before that the pod would run without a device: as with the kubelet, a
    resource that the node does not know is no reason to reject a pod."""

    def amount() -> str:
        with local_agent(str(world.home.run_dir)) as agent:
            resources = agent.streams("node.resources")["node.resources"] or {}
        return str(resources.get("node", {}).get("allocatable", {}).get(plugin.resource))

    async def known() -> bool:
        return await asyncio.to_thread(amount) == "2"

    await world.wait_for(known, f"the node to have 2 {plugin.resource}")


def with_device(pod: Object, plugin: DevicePlugin, **annotations: str) -> Object:
    pod["spec"]["containers"][0]["resources"] = {kind: {plugin.resource: "1"} for kind in ("limits", "requests")}
    pod["metadata"]["annotations"] = annotations
    return pod


def has_cdi() -> bool:
    """Return whether this containerd can resolve CDI devices."""
    return (read_version(first_line("containerd", "--version")) or (0, 0)) >= (1, 7)


async def environment_of(world: World, container: Container) -> dict[str, str]:
    answer = await world.runtime.exec_sync(container.id, ["env"], timeout=60)
    return dict(line.split("=", 1) for line in answer.stdout.decode().splitlines() if "=" in line)


async def status_of(world: World, name: str) -> Object:
    """Return the status of the pod's container as the API shows it; {} = it has none yet."""
    pod = await world.pod(name)
    statuses = (pod or {}).get("status", {}).get("containerStatuses") or [{}]
    return dict(statuses[0])


async def wait_status(world: World, name: str, what: str, **fields: Any) -> None:
    async def shown() -> bool:
        status = await status_of(world, name)
        return all(status.get(field) == value for field, value in fields.items())

    await world.wait_for(shown, f"the status of pod {name} to show {what}")


def health(plugin: DevicePlugin, **devices: str) -> list[Object]:
    listed = [{"resourceID": device, "health": state} for device, state in devices.items()]
    return [{"name": plugin.resource, "resources": listed}]


async def test_a_container_gets_its_devices_and_its_plugin_is_called_before_each_start() -> None:
    async with World() as world:
        with plugin_of(world, "--pre-start", "--cdi", str(CDI)) as plugin:
            await wait_known(world, plugin)
            world.put_manifest("gpu", with_device(busybox_pod("gpu"), plugin))
            first = (await world.wait_running("gpu")).containers[0]
            [[device]] = plugin.calls("Allocate")
            assert plugin.calls("PreStartContainer") == [[device]]

            name = plugin.resource.rpartition("/")[2].upper()
            found = await environment_of(world, first)
            assert found[f"{name}_IDS"] == device
            assert found.get(f"CDI_{device.upper()}") == ("given" if has_cdi() else None)
            script = f"stat -c '%t %T' /dev/{device} && test -e /plugin/devices.json && ! touch /plugin/x 2>/dev/null"
            answer = await world.runtime.exec_sync(first.id, ["sh", "-c", script], timeout=60)
            assert (answer.exit_code, answer.stdout.decode().strip()) == (0, "1 3")  # the numbers of /dev/null
            await wait_status(
                world, "gpu", "a healthy device", allocatedResourcesStatus=health(plugin, **{device: "Healthy"})
            )

            await world.wait_back("podsync", world.kill("podsync"))
            await world.wait_served("gpu")
            assert [c.id for c in (await world.wait_running("gpu")).containers] == [first.id]

            plugin.fault("PreStartContainer", "UNAVAILABLE")
            await world.runtime.stop_container(first.id, 0)

            async def waits() -> bool:
                waiting = (await status_of(world, "gpu")).get("state", {}).get("waiting") or {}
                return waiting.get("reason") == "CreateContainerConfigError" and "PreStartContainer rpc failed" in str(
                    waiting.get("message")
                )

            await world.wait_for(waits, "the container to wait for its plugin")
            plugin.fault("PreStartContainer")
            second = (await world.wait_running("gpu")).containers[0]
            assert second.id != first.id
            assert plugin.calls("Allocate") == [[device]]  # what it answered is on disk
            assert (await environment_of(world, second))[f"{name}_IDS"] == device


@pytest.mark.parametrize("point", ["saved.KillContainer", "acted.KillContainer"])
async def test_a_container_whose_device_becomes_unhealthy_is_restarted_once(point: str) -> None:
    async with World() as world:
        with plugin_of(world) as plugin:
            annotations = {DEVICE_ACTION_ANNOTATION: "RestartContainer"}
            await wait_known(world, plugin)
            world.put_manifest("gpu", with_device(busybox_pod("gpu"), plugin, **annotations))
            first = (await world.wait_running("gpu")).containers[0]
            [[device]] = plugin.calls("Allocate")
            await wait_status(
                world, "gpu", "a healthy device", allocatedResourcesStatus=health(plugin, **{device: "Healthy"})
            )

            old = world.pid_of("podsync")
            world.crash_at(f"podsync.{point}")
            plugin.set_devices({**devices_of("a", "b"), **devices_of(device, health="Unhealthy")})
            await world.wait_back("podsync", old)
            assert world.crashed
            await wait_status(
                world,
                "gpu",
                "that it was restarted",
                restartCount=1,
                ready=True,
                allocatedResourcesStatus=health(plugin, **{device: "Unhealthy"}),
            )
            second = (await world.wait_running("gpu")).containers[0]
            assert second.attempt == 1
            assert second.id != first.id

            await world.wait_back("podsync", world.kill("podsync"))
            await world.wait_served("gpu")
            assert (await world.wait_running("gpu")).containers[0].id == second.id

            plugin.set_devices(devices_of("a", "b"))
            await wait_status(
                world, "gpu", "a healthy device", allocatedResourcesStatus=health(plugin, **{device: "Healthy"})
            )
            assert (await world.wait_running("gpu")).containers[0].id == second.id


async def test_in_a_cluster_a_pod_with_an_unhealthy_device_fails_with_a_disruption_and_its_device_goes_to_no_other(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        with plugin_of(cluster.agent) as plugin:

            async def amounts() -> tuple[str | None, str | None]:
                status = (await cluster.node())["status"]
                return status["capacity"].get(plugin.resource), status["allocatable"].get(plugin.resource)

            async def has_both() -> bool:
                return await amounts() == ("2", "2")

            await cluster.wait_for(has_both, "the node to have both devices")
            annotations = {DEVICE_ACTION_ANNOTATION: "FailPod"}
            await cluster.create(with_device(cluster.pod("gpu"), plugin, **annotations))
            await cluster.wait_ready("gpu")
            [[device]] = plugin.calls("Allocate")
            plugin.set_devices({**devices_of("a", "b"), **devices_of(device, health="Unhealthy")})
            await cluster.wait_event_of("gpu", "DeviceUnhealthy")
            pod = await cluster.wait_pod("gpu", lambda pod: pod["status"]["phase"] == "Failed", "to have failed")
            assert pod["status"]["reason"] == "DeviceUnhealthy"
            [disruption] = [c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget"]
            assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")

            await cluster.create(with_device(cluster.pod("next"), plugin))
            await cluster.wait_ready("next")
            [other] = {"a", "b"} - {device}
            assert plugin.calls("Allocate") == [[device], [other]]

            async def has_one() -> bool:
                return await amounts() == ("2", "1")

            await cluster.wait_for(has_one, "the node to have one healthy device")
