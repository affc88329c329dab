"""Status as a cluster member on virtual time: the API server's double, the other processes played by the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from bus.messages.beat import Beat
from bus.messages.pleg import NodeImage, NodeImages, NodeObserved
from bus.messages.podsync import NodePressure, NodeResources
from bus.messages.sources import NodeObject
from bus.messages.streams import (
    NODE_CONFIG,
    NODE_IMAGES,
    NODE_OBJECT,
    NODE_OBSERVED,
    NODE_PRESSURE,
    NODE_RESOURCES,
    PLUGINS_REGISTERED,
    VOLUMES_IN_USE,
    VOLUMES_REPORTED,
    events_of,
)
from services.frame.launch import Context
from services.frame.resumption import Resumption
from services.status.adapters.clients import Clients
from services.status.core.node_facts import HostNetwork, MachineFacts
from services.status.core.ready import MAIN_LOOPS
from services.status.service import Status
from shared.config.effective import EffectiveConfig
from shared.kube import paths
from shared.kube.interface import ApiError, PatchType
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from tests.fakes.api_resources import NEWEST, OlderServer
from tests.fakes.api_server import FakeApiServer, FakeClient
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import AtOnce, ended, pass_time, until, virtual_clock

NAME = "n1"
USER = "system:node:n1"
NODE, LEASE = paths.node(NAME), paths.lease(NAME)
WELL = NodeObserved(
    observed_at=0,
    runtime_reachable=True,
    runtime_name="containerd",
    runtime_version="1.7.1",
    runtime_ready=True,
    network_ready=True,
    network_message="",
    last_relist_at=1,
    cpus=2,
    memory_capacity=1,
    nodefs_capacity=1,
    supplemental_groups_policy=True,
)
RESOURCES = NodeResources(
    capacity={"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"},
    allocatable={"cpu": "1800m", "memory": "7Gi", "pods": "110", "ephemeral-storage": "90Gi"},
    devices_known=True,
)
NO_DISK_PRESSURE = {
    "type": "DiskPressure",
    "status": "False",
    "reason": "KubeletHasNoDiskPressure",
    "message": "kubelet has no disk pressure",
    "lastTransitionTime": "2023-11-14T22:00:00Z",
}
DISK_PRESSURE = NO_DISK_PRESSURE | {"status": "True", "reason": "KubeletHasDiskPressure"}


class HeartbeatClient(FakeClient):
    """With the time limit that the heartbeat client has."""

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        timeout: float | None,
        *,
        query: Mapping[str, str] | None = None,
        kind: PatchType = PatchType.STRATEGIC,
    ) -> Object:
        limit = 10.0 if timeout is None else timeout
        return await super()._send(method, path, body, limit, query=query, kind=kind)


class StillHost:
    """A machine that does not change, unless a test changes it."""

    def __init__(self) -> None:
        self.facts = MachineFacts(
            machine_id="m", system_uuid="s", boot_id="b1", kernel_version="6.1", os_image="Debian"
        )
        self.addresses = HostNetwork(assigned=frozenset({"192.0.2.7"}), default_routes=("192.0.2.7",))
        self.resolver_seconds = 0.0  # until it answers
        self.device_resources: frozenset[str] = frozenset()

    async def devices(self) -> frozenset[str]:
        return self.device_resources

    async def has_device_checkpoint(self) -> bool:
        return bool(self.device_resources)

    async def machine(self) -> MachineFacts:
        return self.facts

    async def network(self, name: str) -> HostNetwork:
        if self.resolver_seconds:
            await asyncio.sleep(self.resolver_seconds)
        return self.addresses


class NodeStage:
    """One API server, the neighbours' streams, and processes of status one after the other."""

    def __init__(self, directory: Path, drops: OlderServer, **config: Any) -> None:
        asyncio.get_running_loop().set_default_executor(AtOnce())
        self.network = MemoryNetwork(virtual_clock())
        self.clock = self.network.clock
        self.api = FakeApiServer(self.clock, drops=drops)
        self.host = StillHost()
        self.config = EffectiveConfig(
            node_name=NAME,
            root_dir=str(directory / "root"),
            run_dir=str(directory / "run"),
            log_dir="",
            cert_dir="",
            **config,
        )
        self.buses = {name: self.network.bus(name) for name in ("bootstrap", "sources", "podsync", "volume", "server")}
        self.buses["pleg"] = self.network.bus("pleg")
        self.beats: dict[str, Beat] = {}  # the newest of each service
        self.buses["server"].on_beat(lambda beat: self.beats.update({beat.service: beat}))
        self.node_object = self.buses["sources"].own(NODE_OBJECT)
        self.node_config = self.buses["bootstrap"].own(NODE_CONFIG)
        self.resources = self.buses["podsync"].own(NODE_RESOURCES)
        self.pressure = self.buses["podsync"].own(NODE_PRESSURE)
        self.plugins = self.buses["volume"].own(PLUGINS_REGISTERED)
        self.observed = self.buses["pleg"].own(NODE_OBSERVED)
        self.images = self.buses["pleg"].own(NODE_IMAGES)
        self.volumes_in_use = self.buses["volume"].own(VOLUMES_IN_USE)
        self.reported = FollowedStream(self.buses["volume"], VOLUMES_REPORTED)
        self.events = FollowedStream(self.buses["server"], events_of("status"))
        self.heartbeat = HeartbeatClient(self.api, USER)
        self.watching = True  # sources follows the Node; otherwise its stream shows what it last showed
        self.lease_ages: list[float] = []  # how old the lease was, at every second
        self._tasks: list[asyncio.Task[None]] = []
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start everything but status."""
        for bus in self.buses.values():
            await bus.start()
        self._tasks = [asyncio.create_task(self._sources()), asyncio.create_task(self._lease_ages())]

    def is_well(self) -> None:
        """pleg and podsync publish a healthy node."""
        self.observed.put("node", replace(WELL, last_relist_at=self.clock.monotonic()))
        self.resources.put("node", RESOURCES)
        self.pressure.put("node", NodePressure(conditions=(NO_DISK_PRESSURE,)))
        self.images.put("node", NodeImages(images=(NodeImage(id="i", names=("a:1",), size_bytes=5),)))

    async def start(self, generation: str = "g1") -> None:
        """Start a process of status."""
        bus = self.network.bus("status")
        clients = Clients(self.heartbeat, *(FakeClient(self.api, USER) for _ in range(5)))
        self.metrics = Registry("status")
        self.resumption = Resumption(lambda: self.clock.suspended)
        context = Context(
            "status", self.config, bus, self.clock, asyncio.Event(), metrics=self.metrics, resumption=self.resumption
        )
        service = Status(context, clients, host=self.host, generation=generation, chance=lambda: 0.5)
        await bus.start()
        self._running = asyncio.create_task(service.run())
        await self.network.settle()

    def suspend(self, seconds: float) -> None:
        """Suspend the machine, and let status notice that."""
        self.clock.suspend(seconds)
        self.resumption.look()

    async def kill(self) -> None:
        """SIGKILL of status."""
        if self._running is not None:
            self.network.kill("status")
            await ended(self._running)
            self._running = None

    async def close(self) -> None:
        await self.kill()
        for task in self._tasks:
            await ended(task)
        for bus in self.buses.values():
            await bus.stop()

    async def pass_time(self, seconds: float) -> None:
        await pass_time(self.network, seconds)

    async def until(self, holds: Callable[[], object], within: float) -> float:
        return await until(self.network, lambda: bool(holds()), within)

    @property
    def node(self) -> Object:
        """The Node as the API server has it; {} = none."""
        return self.api.get(NODE) or {}

    @property
    def lease(self) -> Object:
        return self.api.get(LEASE) or {}

    def condition(self, kind: str) -> dict[str, str]:
        """A condition of the Node; {} = it has none."""
        found = [c for c in self.node.get("status", {}).get("conditions", []) if c["type"] == kind]
        return found[0] if found else {}

    def ready(self) -> bool:
        return self.condition("Ready").get("status") == "True"

    def node_requests(self, since: int = 0) -> list[tuple[str, str]]:
        """(method, path) of what was asked of the API server, but for the lease and Events."""
        asked = [request for request in self.api.requests[since:] if request[1] not in (LEASE, paths.LEASES)]
        asked = [request for request in asked if not request[1].startswith(paths.CSI_NODES)]
        return [request for request in asked if not request[1].startswith(paths.events("default"))]

    def reasons(self) -> list[str]:
        """Reasons of the events recorded, in order."""
        return [change.value.reason for change in self.events.changes if hasattr(change, "value")]

    async def _sources(self) -> None:
        """sources: the Node as a watch of the API server shows it."""
        client = self.api.client()
        while True:
            with contextlib.suppress(ApiError):
                listed = await client.get(paths.NODES, timeout=5)
                for node in listed["items"]:
                    self.node_object.put("node", NodeObject(node=node))
                if not listed["items"]:
                    self.node_object.delete("node")
                self.node_object.mark_complete()
                query = {"resourceVersion": listed["metadata"]["resourceVersion"]}
                async with client.watch(paths.NODES, query, timeout=300) as events:
                    async for event in events:
                        if not self.watching:
                            continue
                        if event.type == "DELETED":
                            self.node_object.delete("node")
                        else:
                            self.node_object.put("node", NodeObject(node=event.object))
            await asyncio.sleep(1)

    async def _lease_ages(self) -> None:
        while True:
            for bus in self.buses.values():
                bus.progress(MAIN_LOOPS[bus.service])
            if self.lease:
                renewed = datetime.fromisoformat(self.lease["spec"]["renewTime"])
                self.lease_ages.append(self.clock.wall() - renewed.timestamp())
            await asyncio.sleep(1)


@contextlib.asynccontextmanager
async def node_stage(
    directory: Path, *, drops: OlderServer = NEWEST, well: bool = True, **config: Any
) -> AsyncIterator[NodeStage]:
    """A stage that is cleared at the end; `well`: the node has all it needs to be Ready."""
    stage = NodeStage(directory, drops, **config)
    await stage.open()
    if well:
        stage.is_well()
    try:
        yield stage
    finally:
        await stage.close()
