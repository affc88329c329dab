"""Waits for an event for a limited time."""

import asyncio
import contextlib


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, at the latest after `seconds`; the event is clear afterwards."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    event.clear()
