"""Measures the floor: the bare CRI calls that start and stop a pod, by a client that does nothing else."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import grpc
import grpc.aio
from cri_api.v1 import api_pb2, api_pb2_grpc

from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import AT_ONCE, Site
from tools.oci_image import BUSYBOX_IMAGE

START = Figure("floor.start", "floor: RunPodSandbox, CreateContainer, StartContainer", "s")
STOP = Figure("floor.stop", "floor: StopContainer, StopPodSandbox", "s")
CONTAINER = Figure("floor.container", "floor: CreateContainer, StartContainer", "s")
EXIT = Figure("floor.exit", "floor: a first process is killed → ContainerStatus shows it", "s")
LOOK_SECONDS = 0.002  # between two looks


async def floor(site: Site, samples: Samples, plan: Plan) -> None:
    """Measure one pod after another while no agent runs; the container ends at once on SIGTERM."""
    async with grpc.aio.insecure_channel(site.containerd.endpoint) as channel:
        runtime = api_pb2_grpc.RuntimeServiceStub(channel)
        for number in range(plan.floor):
            name = f"floor-{samples.round}-{number}"
            sandbox = _sandbox_config(name, site.containerd.directory)
            began = time.monotonic()
            request = api_pb2.RunPodSandboxRequest(config=sandbox)
            sandbox_id = (await runtime.RunPodSandbox(request)).pod_sandbox_id
            made = time.monotonic()
            create = api_pb2.CreateContainerRequest(
                pod_sandbox_id=sandbox_id, config=_container_config(), sandbox_config=sandbox
            )
            container_id = (await runtime.CreateContainer(create)).container_id
            await runtime.StartContainer(api_pb2.StartContainerRequest(container_id=container_id))
            started = time.monotonic()
            samples.sample(START.key, started - began)
            samples.sample(CONTAINER.key, started - made)
            samples.sample(EXIT.key, await _exit(runtime, sandbox_id, sandbox))
            await asyncio.sleep(0.3)  # the shell needs the time to set its trap; before, it would ignore SIGTERM
            began = time.monotonic()
            await runtime.StopContainer(api_pb2.StopContainerRequest(container_id=container_id, timeout=30))
            await runtime.StopPodSandbox(api_pb2.StopPodSandboxRequest(pod_sandbox_id=sandbox_id))
            samples.sample(STOP.key, time.monotonic() - began)
            await runtime.RemovePodSandbox(api_pb2.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id))


async def _exit(runtime: api_pb2_grpc.RuntimeServiceStub, sandbox_id: str, sandbox: api_pb2.PodSandboxConfig) -> float:
    """Return the seconds until the runtime reports the end of another container of the sandbox."""
    create = api_pb2.CreateContainerRequest(
        pod_sandbox_id=sandbox_id, config=_container_config("ends"), sandbox_config=sandbox
    )
    container_id = (await runtime.CreateContainer(create)).container_id
    await runtime.StartContainer(api_pb2.StartContainerRequest(container_id=container_id))
    look = api_pb2.ContainerStatusRequest(container_id=container_id, verbose=True)
    pid = json.loads((await runtime.ContainerStatus(look)).info["info"])["pid"]
    look = api_pb2.ContainerStatusRequest(container_id=container_id)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while (await runtime.ContainerStatus(look)).status.state != api_pb2.CONTAINER_EXITED:
        await asyncio.sleep(LOOK_SECONDS)
    took = time.monotonic() - began
    # The floor of a stop is that of a pod with one container.
    await runtime.RemoveContainer(api_pb2.RemoveContainerRequest(container_id=container_id))
    return took


def _sandbox_config(name: str, directory: Path) -> api_pb2.PodSandboxConfig:
    return api_pb2.PodSandboxConfig(
        metadata=api_pb2.PodSandboxMetadata(name=name, uid=name, namespace="default"),
        hostname=name,
        log_directory=str(directory),
        linux=api_pb2.LinuxPodSandboxConfig(),
    )


def _container_config(name: str = "main") -> api_pb2.ContainerConfig:
    return api_pb2.ContainerConfig(
        metadata=api_pb2.ContainerMetadata(name=name),
        image=api_pb2.ImageSpec(image=BUSYBOX_IMAGE),
        command=list(AT_ONCE),
        log_path=f"{name}.log",
        linux=api_pb2.LinuxContainerConfig(),
    )


SCENARIOS = (Scenario("floor", floor, (START, STOP, CONTAINER, EXIT), floor=True),)
