"""Requests from supervisord to run a program that it does not start by itself, until it does."""

import asyncio
import logging
from collections.abc import Callable

from services.bootstrap.adapters import supervisord

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0  # no event reports that supervisord can start a program again


async def ensure_program(program: str, module: str, trouble: Callable[[str | None], None]) -> None:
    """Request from supervisord to run this program, which is `module`, until it does. `trouble` is called with a line,
    or None."""
    while not await asyncio.to_thread(start_program, program, module):
        trouble(f"the program {program} was not started by supervisord")
        await asyncio.sleep(_RETRY_SECONDS)
    trouble(None)


def start_program(program: str, module: str) -> bool:
    """Request from supervisord to run this program. Log a line and return False if it did not."""
    parent = supervisord.Supervisord.of_environment()
    if parent is None:
        log.warning("no supervisord here: start `python -P -m %s` by hand", module)
        return True
    try:
        parent.start_program(program)
    except supervisord.SupervisordError as error:
        log.error("the program %s was not started: %s", program, error)
        return False
    return True
