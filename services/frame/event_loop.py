"""Makes the event loop of a service, and reports connections that end while they are written to: no bug of ours.

A peer may be a pod that resets each connection of a probe, so there is one line a minute at most, at debug level.
"""

import asyncio
import logging
import time
from typing import Any

import uvloop

INTERVAL = 60.0  # seconds

log = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that reports errors as `ConnectionErrors` does."""
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    loop.set_exception_handler(ConnectionErrors())
    return loop


class ConnectionErrors:
    """An exception handler of an event loop; what is no error of a connection goes to the loop's own handler."""

    def __init__(self) -> None:
        self._logged, self._count = float("-inf"), 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report one error, as `loop.set_exception_handler` passes it."""
        error = context.get("exception")
        if "transport" not in context or not _is_of_connection(error):
            loop.default_exception_handler(context)
            return
        self._count += 1
        if (now := time.monotonic()) - self._logged >= INTERVAL and log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s (%d since the last line)", context.get("message", ""), error, self._count)
            self._logged, self._count = now, 0


def _is_of_connection(error: object) -> bool:
    """uvloop raises RuntimeError for a write to a transport that has just failed."""
    closed = isinstance(error, RuntimeError) and str(error).endswith("the handler is closed")
    return closed or isinstance(error, OSError)
