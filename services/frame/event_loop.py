"""Makes the event loop of a service, and reports connections that end during a write, which is no bug of ours.
A peer may be a pod that resets each connection of a probe, so there is at most one line a minute, at debug level.
"""

import asyncio
import logging
import time
from typing import Any

import uvloop

LOG_SECONDS = 60.0  # between two lines

log = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that reports errors as `ConnectionErrors` does."""
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    loop.set_exception_handler(ConnectionErrors())
    return loop


class ConnectionErrors:
    """Handles exceptions of an event loop; an error that is none of a connection goes to the loop's own handler."""

    def __init__(self) -> None:
        self._logged, self._count = float("-inf"), 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report one error, as `loop.set_exception_handler` passes it."""
        error = context.get("exception")
        if "transport" not in context or not _is_of_connection(error):
            loop.default_exception_handler(context)
            return
        self._count += 1
        if (now := time.monotonic()) - self._logged >= LOG_SECONDS and log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s (%d since the last line)", context.get("message", ""), error, self._count)
            self._logged, self._count = now, 0


def _is_of_connection(error: object) -> bool:
    """Return whether it is an error of a connection; for a write to a transport that has just failed, uvloop raises
    RuntimeError."""
    closed = isinstance(error, RuntimeError) and str(error).endswith("the handler is closed")
    return closed or isinstance(error, OSError)
