"""The two buses behind one face, so that one test class can hold both to the same contract."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bus.endpoint import Endpoint
from bus.frames import Frames
from bus.manifest import new_manifest, prepare_run_dir
from bus.process_bus import ProcessBus
from tests.fakes.memory_bus import MemoryNetwork
from tests.support.waits.deadline import WAIT_SECONDS


class Harness(ABC):
    """A world of buses."""

    @abstractmethod
    def bus(self, service: str) -> Endpoint:
        """A new bus of this service, not started."""

    @abstractmethod
    async def kill(self, bus: Endpoint) -> None:
        """End the bus, so that a new one of its service may start."""

    @abstractmethod
    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; fail when it never does."""

    @abstractmethod
    async def pass_time(self, seconds: float) -> None:
        """Let seconds pass where time is virtual; real time passes by itself."""

    @abstractmethod
    def publish_raw(self, sender: Endpoint, receiver: Endpoint, message: Frames) -> None:
        """Put these very frames on the sender's wire."""

    @abstractmethod
    async def close(self) -> None:
        """End everything."""


class MemoryHarness(Harness):
    """MemoryBus on virtual time."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()

    def bus(self, service: str) -> Endpoint:
        return self.network.bus(service)

    async def kill(self, bus: Endpoint) -> None:
        self.network.kill(bus.service)

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(5):
            await self.network.settle()
            if condition():
                return
            await self.network.advance(1.0)
        raise AssertionError("the condition never came true")

    async def pass_time(self, seconds: float) -> None:
        await self.network.settle()
        await self.network.advance(seconds)

    def publish_raw(self, sender: Endpoint, receiver: Endpoint, message: Frames) -> None:
        self.network.inject(receiver.service, message)

    async def close(self) -> None:
        await self.network.settle()


class NodeHarness(Harness):
    """ProcessBus on real ipc sockets, all in this process."""

    def __init__(self, run_dir: Path) -> None:
        prepare_run_dir(run_dir)
        self._manifest = new_manifest(run_dir)
        self._buses: list[ProcessBus] = []

    def bus(self, service: str) -> Endpoint:
        bus = ProcessBus(service, self._manifest)
        self._buses.append(bus)
        return bus

    async def kill(self, bus: Endpoint) -> None:
        await bus.stop()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                await asyncio.sleep(0.002)

    async def pass_time(self, seconds: float) -> None:
        pass

    def publish_raw(self, sender: Endpoint, receiver: Endpoint, message: Frames) -> None:
        sender._publish(message)

    async def close(self) -> None:
        for bus in self._buses:
            await bus.stop()


@pytest.fixture(params=["memory", "node"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    world: Harness = MemoryHarness() if request.param == "memory" else NodeHarness(tmp_path / "run")
    yield world
    await world.close()
