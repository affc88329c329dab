"""Runs a program of supervisord that is no service of the bus: the keeper of containerd, or the shim of Docker."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from shared.config.effective import EffectiveConfig
from shared.config.loader import load_effective
from shared.errors import OperatorError
from shared.log.process_log import LogFile, start_log

log = logging.getLogger(__name__)


def load_configuration(run_dir: Path) -> EffectiveConfig:
    """Return the configuration that bootstrap has written. Raises OperatorError where it has written none."""
    try:
        return load_effective(str(run_dir))
    except FileNotFoundError as error:
        raise OperatorError("is not there yet", where=str(error.filename), remedy="start bootstrap first") from error


def run_program(name: str, run: Callable[[LogFile], Awaitable[int]]) -> NoReturn:
    """Open the log of this name, do what `run` does, and exit the process with the code that it returns, or with 1
    where it fails."""

    async def work() -> int:
        return await run(service_log)

    os.umask(0o077)
    service_log = start_log(name)
    code = 1
    try:
        code = asyncio.run(work())
    except OperatorError as error:
        log.error("%s", error)
    except Exception:
        log.critical("the program %s failed", name, exc_info=True)
    service_log.finish()
    os._exit(code)
