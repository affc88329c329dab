"""A service on the in-memory bus, from its start to its SIGKILL."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from tests.fakes.memory_bus import MemoryBus, MemoryNetwork
from tests.fakes.virtual_time import ended


class Runs(Protocol):
    """What `build` of a service returns."""

    async def run(self) -> None: ...


@contextlib.asynccontextmanager
async def running_service(network: MemoryNetwork, bus: MemoryBus, service: Runs) -> AsyncIterator[None]:
    """The service runs within the block; at its end it is killed: nothing that it publishes arrives any more."""
    await bus.start()
    task = asyncio.create_task(service.run())
    try:
        yield
    finally:
        network.kill(bus.service)
        await ended(task)
