"""A server on the in-memory bus with real listeners on loopback, and the streams it follows in the test's hands."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bus.interface import OwnedStream, RequestRefusedError
from bus.messages.cgroup_details import FoundCgroups, GetCgroups
from bus.messages.device_plugins import DeviceResource
from bus.messages.pleg import NodeObserved
from bus.messages.podsync import AdmittedPod, ImagePull, NodePressure, NodeResources, NodeShutdown, PodStatus
from bus.messages.resource_claims import PodClaims
from bus.messages.sources import ApiPodStatus, DesiredPod, MirrorPod, NodeObject
from bus.messages.streams import (
    CLAIMS_PREPARED,
    DEVICES_RESOURCES,
    NODE_OBJECT,
    NODE_OBSERVED,
    NODE_PRESSURE,
    NODE_RESOURCES,
    NODE_SHUTDOWN,
    NODE_USAGE,
    PODS_ADMITTED,
    PODS_API_STATUS,
    PODS_DESIRED,
    PODS_MIRRORS,
    PODS_PULLS,
    PODS_STATUS,
    RUNTIME_PODS,
    VOLUMES_MOUNTED,
)
from bus.messages.usage import FoundUsage, GetUsage, NodeUsage
from bus.messages.volume import MountedVolumes
from services.frame.debugging import Debugging
from services.frame.launch import Context
from services.frame.metrics import serve_metrics
from services.server.service import ServerService
from shared.config.effective import EffectiveConfig
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from tests.fakes.memory_bus import MemoryBus, MemoryNetwork
from tests.fakes.runtime import FakeRuntime
from tests.support.agents.free_ports import free_ports

NAMESPACE, POD, UID, CONTAINER = "default", "web", "uid-1", "main"
CONTAINER_ID = "c1"


def free_port() -> int:
    """Return a port without a listener, which the kernel gives to no connection meanwhile."""
    [port] = free_ports(1)
    return port


def pod_log(directory: Path, name: str = "0.log") -> Path:
    """The path of a log of the container, in its pod's log directory, which is there."""
    container = directory / "pods" / f"{NAMESPACE}_{POD}_{UID}" / CONTAINER
    container.mkdir(parents=True, exist_ok=True)
    return container / name


def configuration(directory: Path, **more: Any) -> EffectiveConfig:
    """Listeners on loopback without TLS files; what a test needs goes on top."""
    (directory / "run").mkdir(exist_ok=True)
    (directory / "root/pods-api").mkdir(parents=True, exist_ok=True)  # as bootstrap does
    port, read_only_port, healthz_port = free_ports(3)
    config = EffectiveConfig(
        node_name="node-1",
        root_dir=str(directory / "root"),
        run_dir=str(directory / "run"),
        log_dir=str(directory / "log"),
        cert_dir=str(directory / "pki"),
        pod_logs_dir=str(directory / "pods"),
        address="127.0.0.1",
        port=port,
        read_only_port=read_only_port,
        healthz_port=healthz_port,
        enable_server=False,
        authorization_mode="AlwaysAllow",
        webhook_authentication=False,
    )
    return replace(config, **more)


class Node:
    """The other services, as the server sees them."""

    def __init__(self, complete: bool = True) -> None:
        self.verbosity: Callable[[int], object] = lambda _: None  # what services do with the verbosity they are given
        self.complete = complete  # what the services publish is complete from the start
        self.network = MemoryNetwork()
        self.buses: dict[str, MemoryBus] = {}
        self.metrics: dict[str, Registry] = {}
        self.cri = FakeRuntime(self.network.clock)
        self.desired: OwnedStream[DesiredPod]
        self.mirrors: OwnedStream[MirrorPod]
        self.api_statuses: OwnedStream[ApiPodStatus]
        self.status: OwnedStream[PodStatus]
        self.runtime: OwnedStream[RuntimePod]
        self.admitted: OwnedStream[AdmittedPod]
        self.pulls: OwnedStream[ImagePull]
        self.pressure: OwnedStream[NodePressure]
        self.resources: OwnedStream[NodeResources]
        self.shutdown: OwnedStream[NodeShutdown]
        self.volumes: OwnedStream[MountedVolumes]
        self.devices: OwnedStream[DeviceResource]
        self.claims: OwnedStream[PodClaims]
        self.observed: OwnedStream[NodeObserved]
        self.object: OwnedStream[NodeObject]
        self.usage: OwnedStream[NodeUsage]

    async def start(self, *services: str) -> None:
        """Start these services, in a new incarnation where they were killed."""
        for service in services:
            bus = self.buses[service] = self.network.bus(service)
            metrics = self.metrics[service] = Registry(service)
            serve_metrics(bus, metrics)
            Debugging(self.verbosity).serve(bus)
            if service == "sources":
                self.desired = bus.own(PODS_DESIRED)
                self.mirrors = bus.own(PODS_MIRRORS)
                self.api_statuses = bus.own(PODS_API_STATUS)
                self.object = bus.own(NODE_OBJECT)
            elif service == "podsync":
                self.status = bus.own(PODS_STATUS)
                self.admitted = bus.own(PODS_ADMITTED)
                self.pulls = bus.own(PODS_PULLS)
                self.pressure = bus.own(NODE_PRESSURE)
                self.resources = bus.own(NODE_RESOURCES)
                self.shutdown = bus.own(NODE_SHUTDOWN)
            elif service == "volume":
                self.volumes = bus.own(VOLUMES_MOUNTED)
                self.devices = bus.own(DEVICES_RESOURCES)
                self.claims = bus.own(CLAIMS_PREPARED)
            elif service == "pleg":
                self.runtime = bus.own(RUNTIME_PODS)
                self.observed = bus.own(NODE_OBSERVED)
                self.usage = bus.own(NODE_USAGE)
                bus.answer(GetUsage, self.answer_usage)
                bus.answer(GetCgroups, self.answer_cgroups)
            await bus.start()
            if self.complete:
                self.mark_complete(service)

    async def answer_usage(self, request: GetUsage) -> FoundUsage:
        """pleg's answer."""
        raise RequestRefusedError("this pleg reads nothing")

    async def answer_cgroups(self, request: GetCgroups) -> FoundCgroups:
        """pleg's answer."""
        raise RequestRefusedError("this pleg reads nothing")

    def mark_complete(self, service: str) -> None:
        """What this service publishes of pods is all there is."""
        names = {
            "sources": ("desired", "mirrors", "api_statuses", "object"),
            "podsync": ("status", "admitted", "pulls", "pressure", "resources", "shutdown"),
            "volume": ("volumes", "devices", "claims"),
            "pleg": ("runtime", "observed", "usage"),
        }
        for name in names.get(service, ()):
            getattr(self, name).mark_complete()

    async def run_pod(self, log_path: Path | str = "", state: ContainerState = ContainerState.RUNNING) -> None:
        """The pod is desired, its container is running by podsync's word, and in `state` by the runtime's."""
        metadata = {"name": POD, "namespace": NAMESPACE, "uid": UID}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": CONTAINER}]}}
        self.desired.put(UID, DesiredPod(uid=UID, source="file", pod=pod))
        self.report_status({"running": {}})
        self.observe(log_path, state)
        await self.network.settle()

    def report_status(self, state: dict[str, Any], runtime: str = "containerd") -> None:
        """The status of the container as podsync publishes it."""
        entry = {"name": CONTAINER, "state": state, "containerID": f"{runtime}://{CONTAINER_ID}", "restartCount": 0}
        status = {"phase": "Running", "containerStatuses": [entry]}
        self.status.put(UID, PodStatus(uid=UID, name=POD, namespace=NAMESPACE, version=(1, 1), status=status))

    def observe(self, log_path: Path | str, state: ContainerState) -> None:
        """The runtime's word on the container."""
        container = Container(
            id=CONTAINER_ID,
            name=CONTAINER,
            attempt=0,
            sandbox_id="s1",
            state=state,
            created_at=1,
            log_path=str(log_path),
        )
        sandbox = Sandbox(id="s1", attempt=0, state=SandboxState.READY, created_at=1)
        observed_at = self.network.clock.monotonic()
        pod = RuntimePod(
            uid=UID,
            name=POD,
            namespace=NAMESPACE,
            observed_at=observed_at,
            sandboxes=(sandbox,),
            containers=(container,),
        )
        self.runtime.put(UID, pod)


class Running:
    """A server that runs, and a client for it."""

    def __init__(
        self, node: Node, config: EffectiveConfig, service: ServerService, client: aiohttp.ClientSession
    ) -> None:
        self.node, self.config, self.service, self.client = node, config, service, client
        self.read_only = f"http://127.0.0.1:{config.read_only_port}"
        self.main = f"https://127.0.0.1:{config.port}"
        self.healthz = f"http://127.0.0.1:{config.healthz_port}"

    async def get(self, url: str, method: str = "GET", **more: Any) -> tuple[int, str]:
        """Status and body."""
        async with self.client.request(method, url, allow_redirects=False, **more) as response:
            return response.status, await response.text()


@asynccontextmanager
async def running(config: EffectiveConfig, node: Node | None = None) -> AsyncIterator[Running]:
    """Run a server with every other service present until the block ends."""
    node = node or Node()
    await node.start("bootstrap", "sources", "podsync", "volume", "pleg", "status")
    bus = node.network.bus("server")
    context = Context("server", config, bus, node.network.clock, asyncio.Event(), metrics=Registry("server"))
    service = ServerService(context, node.cri)
    await bus.start()
    await node.network.settle()
    task = asyncio.create_task(service.run())
    opened = asyncio.create_task(service.opened.wait())
    try:
        await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if task.done():
            task.result()
        async with aiohttp.ClientSession() as client:
            yield Running(node, config, service, client)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.stop()
