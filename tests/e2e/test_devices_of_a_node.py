"""The Node, the command `bulkhead devices` and the PodResources API show the devices of a node in a real cluster."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from shared.model.objects import Object
from shared.plugin_grpc import pod_resources_v1_pb2 as v1
from tests.programs.device_plugin import DevicePlugin, devices_of
from tests.programs.running import running_program
from tests.support.agents.agent import BIN
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

GPU = "example.com/gpu"
Amounts = tuple[str | None, str | None]  # capacity, allocatable


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def plugin_process(directory: Path) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Run a plugin with two devices below this directory, until the block ends."""
    return running_program("device_plugin", str(directory), GPU, "--ids", "gpu-0,gpu-1")


async def amounts(cluster: Cluster) -> Amounts:
    status = (await cluster.node())["status"]
    return status["capacity"].get(GPU), status["allocatable"].get(GPU)


async def wait_amounts(cluster: Cluster, expected: Amounts) -> None:
    async def seen() -> bool:
        return await amounts(cluster) == expected

    await cluster.wait_for(seen, f"capacity and allocatable of {GPU} to be {expected}")


async def shown(cluster: Cluster) -> dict[str, Any]:
    """Return what `bulkhead devices` prints as JSON, once all processes that it asks answer within its second."""
    command = [str(BIN / "bulkhead"), "devices", "--run-dir", str(cluster.agent.home.run_dir), "-o", "json"]

    async def printed() -> dict[str, Any] | None:
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0 or "does not answer" in done.stderr, done.stderr
        return json.loads(done.stdout) if done.returncode == 0 else None

    found: dict[str, Any] = await cluster.wait_for(printed, "an answer of all processes")
    return found


async def ask(root: Path, method: str, request: Any, answer: Any) -> Any:
    """Return the answer of the PodResources API."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{root}/pod-resources/kubelet.sock", options=options) as channel:
        return await channel.unary_unary(
            f"/v1.PodResourcesLister/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )(request, wait_for_ready=True, timeout=WAIT_SECONDS)


async def wait_allocatable(cluster: Cluster, *ids: str) -> None:
    """Wait until PodResources has these devices as allocatable: server learns of them by itself."""
    root = cluster.agent.home.path / "kubelet"

    async def seen() -> bool:
        found = await ask(
            root, "GetAllocatableResources", v1.AllocatableResourcesRequest(), v1.AllocatableResourcesResponse
        )
        return [name for device in found.devices for name in device.device_ids] == list(ids)

    await cluster.wait_for(seen, f"PodResources to have the devices {ids} as allocatable")


async def wait_held(cluster: Cluster, *pods: str) -> dict[str, list[str]]:
    """Wait until these pods of PodResources have devices, and no other. Return their ids by the names of the pods:
    server learns of pods later than the API server."""
    root = cluster.agent.home.path / "kubelet"

    async def seen() -> dict[str, list[str]] | None:
        found = await ask(root, "List", v1.ListPodResourcesRequest(), v1.ListPodResourcesResponse)
        devices = {
            pod.name: [name for one in pod.containers for device in one.devices for name in device.device_ids]
            for pod in found.pod_resources
        }
        held = {name: ids for name, ids in devices.items() if ids}
        return held if held.keys() == set(pods) else None

    held: dict[str, list[str]] = await cluster.wait_for(seen, f"PodResources to have the devices of {pods}")
    return held


def requesting(cluster: Cluster, name: str) -> Object:
    pod = cluster.pod(name)
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}}
    return pod


async def test_the_node_has_what_its_plugin_lists_through_kills_and_nothing_healthy_once_it_is_gone(
    cluster: Cluster,
) -> None:
    agent = cluster.agent
    root = agent.home.path / "kubelet"
    with plugin_process(root / "device-plugins") as process:
        await wait_amounts(cluster, ("2", "2"))
        plugin = DevicePlugin(root / "device-plugins", GPU, {})
        plugin.set_devices({**devices_of("gpu-0", nodes=(0,)), **devices_of("gpu-1", health="Unhealthy")})
        await wait_amounts(cluster, ("2", "1"))
        found = await shown(cluster)
        assert [(row["device"], row["health"], row["numa_nodes"]) for row in found["devices"]] == [
            ("gpu-0", "Healthy", [0]),
            ("gpu-1", "Unhealthy", []),
        ]
        await wait_allocatable(cluster, "gpu-0")

        for service in ("volume", "podsync", "status"):
            await agent.wait_back(service, agent.kill(service))
            # The plugin of this test serves anew at each start of volume, and may be away for a moment.
            await wait_amounts(cluster, ("2", "1"))
        plugin.set_devices(devices_of("gpu-0", "gpu-1"))
        await wait_amounts(cluster, ("2", "2"))

        process.send_signal(signal.SIGKILL)
        await wait_amounts(cluster, ("2", "0"))
        [row] = (await shown(cluster))["resources"]
        assert (row["connected"], row["capacity"], row["allocatable"]) == (False, 2, 0) and row["error"]
        await wait_allocatable(cluster)


async def test_each_pod_has_a_device_of_its_own_through_kills_and_one_too_many_is_rejected(cluster: Cluster) -> None:
    agent = cluster.agent
    root = agent.home.path / "kubelet"
    with plugin_process(root / "device-plugins"):
        DevicePlugin(root / "device-plugins", GPU, {}).set_devices(devices_of("gpu-0", "gpu-1"))
        await wait_amounts(cluster, ("2", "2"))
        for name in ("first", "second"):
            await cluster.create(requesting(cluster, name))
        await cluster.wait_ready("first", "second")
        given = await wait_held(cluster, "first", "second")
        assert sorted(each for ids in given.values() for each in ids) == ["gpu-0", "gpu-1"]
        await cluster.create(requesting(cluster, "third"))
        rejected = await cluster.wait_pod("third", lambda pod: pod["status"].get("phase") == "Failed", "to be rejected")
        assert rejected["status"]["reason"] == "UnexpectedAdmissionError"
        assert (
            f"requested number of devices unavailable for {GPU}. Requested: 1, Available: 0"
            in (rejected["status"]["message"])
        )

        for service in ("volume", "podsync", "server"):
            await agent.wait_back(service, agent.kill(service))
        assert await wait_held(cluster, "first", "second") == given
        holders = {
            row["device"]: [one["pod"] for one in row["containers"]] for row in (await shown(cluster))["devices"]
        }
        assert holders == {ids[0]: [name] for name, ids in given.items()}
        await cluster.delete_pod("first")
        await cluster.wait_gone("first")
        await cluster.create(requesting(cluster, "fourth"))
        await cluster.wait_ready("fourth")
        now = await wait_held(cluster, "fourth", "second")
        assert now == {"fourth": given["first"], "second": given["second"]}
