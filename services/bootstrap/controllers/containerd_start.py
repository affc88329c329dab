"""Requests from supervisord to run the program `containerd`, until it does."""

import asyncio
import logging
from collections.abc import Callable

from services.bootstrap.adapters import supervisord

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0  # no event reports that supervisord can start a program again


async def ensure_containerd(trouble: Callable[[str | None], None]) -> None:
    """Request from supervisord to run the program `containerd`, until it does. `trouble` is called with a line, or
    None."""
    while not await asyncio.to_thread(start_containerd):
        trouble("the embedded containerd was not started by supervisord")
        await asyncio.sleep(_RETRY_SECONDS)
    trouble(None)


def start_containerd() -> bool:
    """Request from supervisord to run the program `containerd`. Log a line and return False if it did not."""
    parent = supervisord.Supervisord.of_environment()
    if parent is None:
        log.warning("no supervisord here: start `python -P -m services.bootstrap.containerd` by hand")
        return True
    try:
        parent.start_program("containerd")
    except supervisord.SupervisordError as error:
        log.error("the embedded containerd was not started: %s", error)
        return False
    return True
