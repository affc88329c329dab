"""Sources of a node in a cluster, on virtual time: the API server is a double, the other services are the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from bus.messages.sources import REQUESTED_READ_TIMEOUT_SECONDS, FoundObject, FoundServices, GetObject, GetServices
from bus.messages.streams import NODE_OBJECT, OBJECTS_CHANGED, PODS_DESIRED, PODS_MIRRORS, events_of
from services.frame.launch import Context
from services.sources.adapters.clients import Clients
from services.sources.service import Sources
from shared.config.effective import EffectiveConfig
from shared.kube import paths
from shared.kube.interface import ApiClient
from shared.model import objects
from shared.model.objects import Object
from tests.fakes.api_resources import NEWEST, OlderServer
from tests.fakes.api_server import ADMIN, FakeApiServer
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import AtOnce, VirtualLoop, virtual_clock

NODE = "node1"


def noticed_within(outage: float) -> float:
    """Seconds within which the return of the API server is noticed after an outage of so many: the longest pause that
    can have begun in it (docs/limits.md, Requests)."""
    return min(72.0, 4 * (outage + 1))


def pod(name: str, *, namespace: str = "default", **spec: Any) -> Object:
    """A pod as a user writes it."""
    containers = [{"name": "main", "image": "busybox:1"}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": containers, **spec}}


def mirror(name: str, config_hash: str) -> Object:
    """A mirror pod as an administrator would write it."""
    made = pod(name)
    made["metadata"]["annotations"] = {"kubernetes.io/config.mirror": config_hash}
    return made


class ClusterNode:
    """One node's sources, started again and again, and the streams it publishes."""

    def __init__(self, tmp_path: Path, drops: OlderServer = NEWEST, **config: Any) -> None:
        asyncio.get_running_loop().set_default_executor(AtOnce())
        self.clock = virtual_clock()
        self.network = MemoryNetwork(self.clock)
        self.api = FakeApiServer(self.clock, drops=drops)
        self.config = EffectiveConfig(
            node_name=NODE,
            root_dir=str(tmp_path / "root"),
            run_dir=str(tmp_path / "run"),
            log_dir="",
            cert_dir="",
            kubeconfig="/etc/kubeconfig",
            **config,
        )
        self._bus = self.network.bus("podsync")
        self.desired = FollowedStream(self._bus, PODS_DESIRED)
        self.mirrors = FollowedStream(self._bus, PODS_MIRRORS)
        self.nodes = FollowedStream(self._bus, NODE_OBJECT)
        self.changed = FollowedStream(self._bus, OBJECTS_CHANGED)
        self.events = FollowedStream(self._bus, events_of("sources"))
        self._task: asyncio.Task[None] | None = None

    async def start(self, client: ApiClient | None = None, *, objects_client: ApiClient | None = None) -> None:
        """Start sources; `client` reads everything, unless the second reads what pods name."""
        bus = self.network.bus("sources")
        context = Context("sources", self.config, bus, self.clock, asyncio.Event())
        client = client or self.api.client(f"system:node:{NODE}")
        service = Sources(context, Clients(node=client, objects=objects_client or client))
        await bus.start()
        self._task = asyncio.create_task(service.run())
        await self.settle()

    async def kill(self) -> None:
        """SIGKILL, as far as one process can play it."""
        if self._task is not None:
            self.network.kill("sources")
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def open(self) -> None:
        """The neighbours, and our Node in the API."""
        await self._bus.start()
        self.api.put(paths.node(NODE), {"metadata": {"name": NODE}})

    async def close(self) -> None:
        """The end of the test."""
        await self.kill()
        await self._bus.stop()

    async def settle(self) -> None:
        """Everything that can react has reacted; no time passes."""
        await self.network.settle()
        assert self._task is None or not self._task.done(), self._task

    async def pass_time(self, seconds: float) -> None:
        """Timer by timer."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        end = loop.time() + seconds
        await self.settle()
        while (left := end - loop.time()) > 0:
            step = loop.next_timer() - loop.time()
            if step > 0:
                await self.network.advance(min(step, left))
            await self.settle()

    async def until(self, holds: Callable[[], object], within: float) -> float:
        """Seconds until it holds."""
        began = self.clock.monotonic()
        await self.settle()
        while not holds():
            passed = self.clock.monotonic() - began
            assert passed < within, f"did not come true within {within} s"
            await self.pass_time(min(0.1, within - passed))
        return self.clock.monotonic() - began

    async def ask(
        self, kind: str, name: str, *, namespace: str = "default", fresh: bool = False, within: float = 6.0
    ) -> FoundObject:
        """GetObject, waited for on virtual time."""
        asking = asyncio.create_task(self.get_object(kind, name, namespace=namespace, fresh=fresh))
        await self.until(asking.done, within)
        return asking.result()

    async def get_object(self, kind: str, name: str, *, namespace: str = "default", fresh: bool = False) -> FoundObject:
        """GetObject, while something else lets time pass."""
        request = GetObject(kind=kind, namespace=namespace, name=name, fresh=fresh)
        return await self._bus.ask("sources", request, FoundObject, REQUESTED_READ_TIMEOUT_SECONDS)

    async def services_for(self, namespace: str) -> FoundServices:
        """GetServices."""
        asking = asyncio.create_task(self._bus.ask("sources", GetServices(namespace=namespace), FoundServices))
        await self.until(asking.done, within=6.0)
        return asking.result()

    def wanted(self) -> list[str]:
        """Names of the pods that podsync would run."""
        return sorted(objects.name(desired.pod) for desired in self.desired.state.values())

    def troubles(self) -> tuple[str, ...]:
        """The troubles of the newest beat."""
        return self.network._buses["sources"]._present_beat().troubles

    def asked(self, method: str, resource: str) -> int:
        """How many requests of the node came for a collection or an object; a watch that begins with all objects is
        a list as well."""
        return sum(
            method == received.method or (method == "GET" and "sendInitialEvents" in received.query)
            for received in self.api.received
            if received.user != ADMIN and received.path.endswith(resource)
        )


@contextlib.asynccontextmanager
async def cluster_node(tmp_path: Path, **config: Any) -> AsyncIterator[ClusterNode]:
    """A node in a cluster, its sources not started yet."""
    node = ClusterNode(tmp_path, **config)
    await node.open()
    try:
        yield node
    finally:
        await node.close()
