"""The device plugin of the simulated node, as another process: a call that was sent is carried out even when volume is
killed. It takes the place of volume's sockets and connections, not of anything that decides.
"""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from bus.messages.device_plugins import AllocatedDevices
from services.volume.adapters.device_plugins import MAX_ALLOCATE_SECONDS, MAX_CONNECT_SECONDS, MAX_PREFER_SECONDS
from services.volume.core.device_plugins.device_resources import PluginOptions
from shared.plugin_grpc.connection import PluginCallError
from shared.plugin_grpc.device_plugin_pb2 import ListAndWatchResponse
from tests.simulation.faults import Fault, PluginFault
from tests.simulation.loop import INCARNATION, Incarnation
from tests.simulation.oracle import Oracle
from tests.simulation.placement import DEVICES
from tests.simulation.story import Story
from tests.simulation.workload import GPU, PluginPlan

T = TypeVar("T")

VARIABLE = "GPU_IDS"  # of the environment of a container with devices
ENDPOINT = "gpu.sock"
STARTS_AFTER = 0.3  # seconds from the start of the process until it registers
SLOW_SECONDS = 1.0
Register = Callable[[str, str, str], Awaitable[None]]


class SimulatedPlugin:
    """The plugin's process, or none while it is dead. `allocated`: the ids of each Allocate that was carried out."""

    def __init__(
        self, plan: PluginPlan, story: Story, oracle: Oracle, rng: Random, faults: tuple[Fault, ...] = ()
    ) -> None:
        self._plan, self._story, self._oracle, self._rng = plan, story, oracle, rng
        self._faults = [fault for fault in faults if isinstance(fault, PluginFault)]
        self._process = 0  # its number
        self._deaths = 0  # that have not ended yet
        self._unhealthy = 0  # faults of this kind that have not ended yet
        self._dying: list[PluginFault] = []
        self._lists: list[_Lists] = []
        self._pending: list[asyncio.Future[Any]] = []
        self._server: _Registration | None = None
        self._registered_at: object = None  # the server that has answered its registration
        self.allocated: list[tuple[str, ...]] = []

    def begin(self) -> None:
        """Start the process, and plan its faults."""
        self._later(STARTS_AFTER, self._register)
        for fault in self._faults:
            self._later(fault.at, self._fault_begins, fault)

    # -- faults ----------------------------------------------------------------------------------------------------

    def die(self, seconds: float) -> None:
        """End the process; another one begins after some time."""
        self._deaths += 1
        self._process += 1
        self._story.add("plugin", f"has ended for {seconds:g} s")
        self._registered_at = None
        for pending in self._pending:
            if not pending.done():
                pending.set_exception(PluginCallError("Unavailable", "connection reset"))
        for lists in self._lists:
            lists.end()
        self._pending.clear()
        self._lists.clear()
        self._later(seconds, self._live)

    def _live(self) -> None:
        self._deaths -= 1
        if not self._deaths:
            self._story.add("plugin", "begins again")
            self._later(STARTS_AFTER, self._register)

    def _fault_begins(self, fault: PluginFault) -> None:
        match fault.kind:
            case "dead":
                self.die(fault.seconds)
            case "dies":
                self._dying.append(fault)
                self._later(fault.seconds, self._no_longer_dying, fault)
            case "unhealthy":
                self._set_unhealthy(1)
                self._later(fault.seconds, self._set_unhealthy, -1)
            case _:
                pass

    def _no_longer_dying(self, fault: PluginFault) -> None:
        if fault in self._dying:
            self._dying.remove(fault)

    def _set_unhealthy(self, more: int) -> None:
        self._unhealthy += more
        self._story.add("plugin", "has unhealthy devices" if self._unhealthy else "has no unhealthy device")
        for lists in self._lists:
            lists.put(self._devices())

    def _has(self, kind: str) -> bool:
        now = self._story.seconds
        return any(fault.kind == kind and fault.at <= now < fault.at + fault.seconds for fault in self._faults)

    # -- in place of volume's sockets ------------------------------------------------------------------------------

    def registration_server(self, _path: object, register: Register) -> "_Registration":
        """In place of volume's registration_server."""
        return _Registration(self, register)

    def opened(self, server: "_Registration") -> None:
        """Volume has opened the socket of registrations."""
        self._server = server
        if self._registered_at is None:
            self._later(self._rng.uniform(0.05, 0.4), self._register)
        elif self._plan.anew:
            self._later(self._rng.uniform(0.0, 0.1), self.die, self._rng.uniform(0.05, 0.4))

    def _register(self) -> None:
        server = self._server
        if self._deaths or server is None or server.incarnation.dead or self._registered_at is server:
            return
        self._story.add("plugin", "registers")

        async def register() -> None:
            await server.register("v1beta1", GPU, ENDPOINT)
            self._registered_at = server

        asyncio.get_running_loop().create_task(register(), context=server.context.copy())

    @asynccontextmanager
    async def connected(self, endpoint: str) -> AsyncIterator["_Connection"]:
        """In place of volume's connected_plugin."""
        yield _Connection(self)

    # -- calls -----------------------------------------------------------------------------------------------------

    async def call(self, name: str, seconds: float, effect: Callable[[], T]) -> T:
        """Carry out a call, and return its answer. Raises PluginCallError."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()
        way = self._rng.uniform(0.0005, 0.002)
        late = SLOW_SECONDS if self._has("slow") else 0.0
        self._later(way + late, self._carry_out, self._process, name, effect, answered)
        try:
            async with asyncio.timeout(seconds):
                return await answered
        except TimeoutError:
            raise PluginCallError("DeadlineExceeded", "context deadline exceeded") from None

    def _carry_out(self, process: int, name: str, effect: Callable[[], T], answered: "asyncio.Future[T]") -> None:
        if name == "Allocate" and self._dying and process == self._process and not self._deaths:
            self.die(self._dying.pop().seconds)
        if self._deaths or process != self._process:
            if not answered.done():
                answered.set_exception(PluginCallError("Unavailable", "connection refused"))
            return
        result = effect()
        if self._has("silent"):
            self._pending.append(answered)
        elif not answered.done():
            answered.set_result(result)

    def options(self) -> PluginOptions:
        """Return what the plugin requires."""
        return PluginOptions(pre_start_required=self._plan.prepares, preferred_allocation=self._plan.prefers)

    def open_list(self) -> "_Lists":
        """Begin a ListAndWatch."""
        lists = _Lists()
        self._later(self._rng.uniform(0.001, 0.01), self._begin_list, lists)
        return lists

    def _begin_list(self, lists: "_Lists") -> None:
        if self._deaths:
            lists.end()
            return
        self._lists.append(lists)
        lists.put(self._devices())

    def allocate(self, ids: tuple[str, ...]) -> AllocatedDevices:
        """Prepare devices."""
        self._story.add("plugin", f"allocates {','.join(ids)}")
        if not set(ids) <= DEVICES.keys():
            self._oracle.violated(f"devices are allocated that do not exist: {ids}")
        self.allocated.append(ids)
        return AllocatedDevices(envs={VARIABLE: ",".join(ids)})

    def preferred(self, available: tuple[str, ...], size: int) -> tuple[str, ...]:
        """Return the devices with the highest numbers."""
        return tuple(sorted(available)[-size:])

    def _devices(self) -> bytes:
        answer = ListAndWatchResponse()
        for number, (name, nodes) in enumerate(DEVICES.items()):
            device = answer.devices.add(
                ID=name, health="Unhealthy" if self._unhealthy and number % 4 < 2 else "Healthy"
            )
            for node in nodes:
                device.topology.nodes.add(ID=node)
        return answer.SerializeToString(deterministic=True)

    def _later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, do, *args, context=contextvars.Context())


class _Registration:
    """In place of the SocketServer of volume's registrations."""

    def __init__(self, plugin: SimulatedPlugin, register: Register) -> None:
        incarnation = INCARNATION.get()
        assert incarnation is not None
        self._plugin, self.register = plugin, register
        self.incarnation: Incarnation = incarnation
        self.context = contextvars.copy_context()

    async def open(self, trouble: Callable[[str | None], None]) -> None:
        """As the real one."""
        self._plugin.opened(self)
        trouble(None)

    async def stop(self) -> None:
        """As the real one."""


class _Connection:
    """In place of volume's DevicePlugin."""

    def __init__(self, plugin: SimulatedPlugin) -> None:
        self._plugin = plugin

    async def options(self) -> PluginOptions:
        """As the real one."""
        return await self._plugin.call("GetDevicePluginOptions", MAX_CONNECT_SECONDS, self._plugin.options)

    def lists(self) -> "_Lists":
        """As the real one."""
        return self._plugin.open_list()

    async def preferred(self, available: tuple[str, ...], must_include: tuple[str, ...], size: int) -> tuple[str, ...]:
        """As the real one."""
        return await self._plugin.call(
            "GetPreferredAllocation", MAX_PREFER_SECONDS, lambda: self._plugin.preferred(available, size)
        )

    async def allocate(self, devices: tuple[str, ...]) -> AllocatedDevices:
        """As the real one."""
        return await self._plugin.call("Allocate", MAX_ALLOCATE_SECONDS, lambda: self._plugin.allocate(devices))

    async def pre_start(self, devices: tuple[str, ...]) -> None:
        """As the real one."""
        await self._plugin.call("PreStartContainer", MAX_ALLOCATE_SECONDS, lambda: None)


class _Lists:
    """In place of the NewestMessage of a ListAndWatch."""

    def __init__(self) -> None:
        self._newest: bytes | None = None
        self._news = asyncio.Event()
        self.ended = asyncio.Event()

    def put(self, message: bytes) -> None:
        """The plugin lists its devices."""
        self._newest = message
        self._news.set()

    def end(self) -> None:
        """The stream ends with the plugin."""
        self.ended.set()
        self._news.set()

    async def take(self) -> bytes:
        """As the real one."""
        while self._newest is None or self.ended.is_set():
            if self.ended.is_set():
                raise PluginCallError("Unavailable", "the plugin has ended the stream")
            self._news.clear()
            await self._news.wait()
        message, self._newest = self._newest, None
        return message

    def close(self) -> None:
        """Nothing more is read."""
