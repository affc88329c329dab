"""A client of an agent's bus that is no service: one request, or the next beat of a service."""

import asyncio
from typing import Any, TypeVar

from bus.messages.beat import Beat
from bus.messages.manifest import Manifest
from bus.process_bus import ProcessBus
from tests.support.waits.deadline import WAIT_SECONDS

T = TypeVar("T")


async def ask_once(manifest: Manifest, service: str, request: Any, answer: type[T], timeout: float = WAIT_SECONDS) -> T:
    """Send one request to a service and return its answer. Raises as `Bus.ask` does."""
    bus = ProcessBus("command", manifest)
    await bus.start()
    try:
        return await bus.ask(service, request, answer, timeout)
    finally:
        await bus.stop()


async def next_beat(manifest: Manifest, service: str, timeout: float = WAIT_SECONDS) -> Beat:
    """Return the next beat of a service. Raises TimeoutError after `timeout` seconds."""
    bus = ProcessBus("command", manifest)
    found: asyncio.Future[Beat] = asyncio.get_running_loop().create_future()

    def listen(beat: Beat) -> None:
        if beat.service == service and not found.done():
            found.set_result(beat)

    bus.on_beat(listen)
    await bus.start()
    try:
        return await asyncio.wait_for(found, timeout)
    finally:
        await bus.stop()
