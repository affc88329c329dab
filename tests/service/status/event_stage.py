"""The way of events on virtual time: two writers on the bus, the real sink, the API server's double."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bus.interface import Bus
from bus.messages.event import KubeEvent
from bus.messages.streams import events_of
from bus.stream import EventRecorder
from services.status.controllers.event_intake import follow_events
from services.status.controllers.event_sink import EventSink
from shared.kube import paths
from shared.model.objects import Object
from tests.fakes.api_resources import target_of
from tests.fakes.api_server import FakeApiServer, FakeClient
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import AtOnce, ended, pass_time, until, virtual_clock

USER = "system:node:n1"
EVENTS = paths.events("default")
WRITERS = ("podsync", "pleg")


class EventStage:
    """Writers keep running while status is restarted."""

    def __init__(self, directory: Path) -> None:
        asyncio.get_running_loop().set_default_executor(AtOnce())
        self.run_dir = directory
        self.network = MemoryNetwork(virtual_clock())
        self.clock = self.network.clock
        self.api = FakeApiServer(self.clock)
        self.buses: dict[str, Bus] = {}
        self.recorders: dict[str, EventRecorder] = {}
        self._running: asyncio.Task[None] | None = None

    async def start_writer(self, writer: str) -> None:
        """Start a writer again."""
        bus = self.buses[writer] = self.network.bus(writer)
        self.recorders[writer] = EventRecorder(bus.own(events_of(writer)), self.clock)
        await bus.start()

    async def start(self) -> None:
        """Start status again."""
        bus = self.network.bus("status")
        client = FakeClient(self.api, USER)
        self.sink = EventSink(client, self.clock, "n1", self.run_dir, chance=lambda: 0.5)
        for writer in WRITERS:
            follow_events(bus, writer, self.sink.offer)
        await bus.start()
        self._running = asyncio.create_task(self.sink.run())
        await self.network.settle()

    async def kill(self) -> None:
        """SIGKILL of status."""
        if self._running is not None:
            self.network.kill("status")
            await ended(self._running)
            self._running = None

    def publish_event(self, message: str = "m", writer: str = "podsync", **fields: Any) -> None:
        """A writer records an event of the pod `web`."""
        about = {"type": "Normal", "reason": "Started", "namespace": "default", "name": "web", "uid": "u", **fields}
        self.recorders[writer].record(KubeEvent(message=message, **about))

    async def pass_time(self, seconds: float) -> None:
        await pass_time(self.network, seconds)

    async def until_settled(self, total: int, within: float) -> float:
        """Until so many events were counted; the seconds it took."""
        return await until(self.network, lambda: self.total == total, within)

    def events(self, namespace: str = "default") -> list[Object]:
        """As the API server has them."""
        return [dict(event) for _, event in self.api.store.below(target_of(paths.events(namespace)))]

    @property
    def total(self) -> int:
        """How many events were counted in `default`."""
        return sum(event["count"] for event in self.events())

    def counts(self) -> dict[str, int]:
        """By message. Fails when two objects have one."""
        found = {event["message"]: event["count"] for event in self.events()}
        assert len(found) == len(self.events())
        return found


@contextlib.asynccontextmanager
async def event_stage(directory: Path) -> AsyncIterator[EventStage]:
    """A stage with all processes running; cleared at the end."""
    stage = EventStage(directory)
    for writer in WRITERS:
        await stage.start_writer(writer)
    await stage.start()
    try:
        yield stage
    finally:
        await stage.kill()
        for bus in stage.buses.values():
            await bus.stop()
