"""Runs the shim as supervisord's program `dockershim`: lock, configuration, log, signals.

It is no service of the bus: the agent reaches it by CRI alone, as any runtime. It exits with 0, after which supervisord
does not start it again, only where the configuration has no shim.
"""

import asyncio
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from bus.lock import ServiceLock
from bus.manifest import prepare_run_dir
from services.dockershim.service import DockerShim, Settings
from services.frame.generation import supervisor_generation
from services.frame.log_configuration import configure_log
from services.frame.program import load_configuration, run_program
from services.frame.signals import Signals
from services.frame.succession import acquire_lock
from shared.agent.places import find_places
from shared.config.effective import Docker
from shared.host.capabilities import CAP_SYS_RESOURCE, has_capability
from shared.log.process_log import LogFile

log = logging.getLogger(__name__)

_LOWEST_OOM_SCORE = -1000


def lowest_oom_score() -> int:
    """Return the lowest score that Docker may give to a process here: lowering its own needs CAP_SYS_RESOURCE."""
    if has_capability(CAP_SYS_RESOURCE):
        return _LOWEST_OOM_SCORE
    return int(Path("/proc/self/oom_score_adj").read_text())


def settings_of(docker: Docker) -> Settings:
    """Return the settings of the shim by the configuration and what this process may do."""
    return Settings(
        docker_endpoint=docker.endpoint,
        socket=Path(docker.socket),
        records=Path(docker.records_dir),
        sandbox_image=docker.sandbox_image,
        cni_binaries=docker.cni_bin_dirs,
        cni_configurations=Path(docker.cni_conf_dir),
        pull_progress_seconds=docker.pull_progress_seconds,
        oom_score_floor=lowest_oom_score(),
    )


async def run(service_log: LogFile) -> int:
    """Do the work of the process, and return the exit code: 0 where no shim is configured, else 1."""
    signals = Signals(on_second=lambda: os._exit(1))
    signals.install()
    run_dir = Path(find_places().run_dir)
    prepare_run_dir(run_dir)
    config = load_configuration(run_dir)
    configure_log(service_log, config)
    service_log.open(config.log_dir)
    signals.on_hangup = service_log.reopen
    generation = supervisor_generation()
    lock = ServiceLock(run_dir, "dockershim", generation)
    if not await acquire_lock(lock, generation):
        return 1
    if config.docker is None:
        log.info("the configuration asks for no shim in front of Docker")
        return 0
    if delay := lock.record_start(time.monotonic()):
        log.warning("the shim ended too often of late: waiting %.0f s", delay)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await signals.ending.wait()
    Path(config.docker.socket).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shim = asyncio.ensure_future(DockerShim(settings_of(config.docker)).run())
    ending = asyncio.ensure_future(signals.ending.wait())
    await asyncio.wait({shim, ending}, return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        lock.record_end()
    shim.cancel()
    ending.cancel()
    with suppress(asyncio.CancelledError):
        await shim
    return 1


def main() -> NoReturn:
    """Run until a signal comes; exits the process."""
    run_program("dockershim", run)
