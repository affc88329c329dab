"""Runs one task of a service until cancelled: a failure is logged and reported, and the task is started again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bus.interface import Bus

log = logging.getLogger(__name__)

RESTART_DELAY_SECONDS = 1.0  # from the failure of a task to its next start
HEALTHY_AFTER_SECONDS = 60.0  # for which a restarted task must run before its trouble ends


async def restarted(bus: Bus, name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run the task `name` until cancelled; a failure is a trouble of the beat for HEALTHY_AFTER_SECONDS."""
    trouble = f"part {name}"
    clearing: asyncio.TimerHandle | None = None
    while True:
        try:
            await run()
            line = "ended by itself"
        except Exception as error:
            log.exception("%s: %s failed and is run again in %g s", bus.service, name, RESTART_DELAY_SECONDS)
            line = f"failed: {type(error).__name__}"
        if clearing is not None:
            clearing.cancel()
        bus.trouble(trouble, f"{name} {line}; the log has more")
        clearing = asyncio.get_running_loop().call_later(HEALTHY_AFTER_SECONDS, bus.trouble, trouble, None)
        await asyncio.sleep(RESTART_DELAY_SECONDS)
