"""Runs supervisord's program `containerd`, the keeper of the embedded containerd.

The keeper takes the lock `containerd` and watches the containerd that runs. Where none runs, it removes files of libcni
that a power cut has damaged and NAT rules of pods that are gone, writes the configuration that containerd's version
reads, starts containerd and saves its identity in the run directory. If the keeper is killed, or replaced by that of a
newer supervisord, containerd keeps running. TERM ends containerd, by SIGKILL after 15 s, but not its shims, and so not
the pods. HUP ends it, and supervisord starts the keeper again, with the files that bootstrap wrote. It exits with 0,
after which supervisord does not restart it, only where no containerd is configured.
"""

import asyncio
import logging
import os
import shutil
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

from bus.lock import ServiceLock
from bus.manifest import prepare_run_dir
from services.bootstrap.adapters import cni_results
from services.bootstrap.adapters.containerd_process import ContainerdProcess
from services.bootstrap.adapters.left_rules import remove_left_rules
from services.bootstrap.controllers.containerd_files import write_containerd_files
from services.frame.generation import supervisor_generation
from services.frame.log_configuration import configure_log
from services.frame.program import load_configuration, run_program
from services.frame.signals import Signals
from services.frame.succession import acquire_lock
from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig
from shared.log.process_log import LogFile
from shared.process.identity import started_at

log = logging.getLogger(__name__)

_MAX_OUTPUT_BYTES = 16 * 2**20
_MAX_NAMES = 5  # of removed files in one line of the log
_OUTPUT_LOOK_SECONDS = 60.0  # between checks of the size of its output, which containerd does not rotate


async def keep(service_log: LogFile) -> int:
    """Do the work of the process, and return the exit code: 0 where no containerd is configured, else 1."""
    signals = Signals(on_second=lambda: os._exit(1))
    signals.install()
    run_dir = Path(find_places().run_dir)
    prepare_run_dir(run_dir)
    config = load_configuration(run_dir)
    configure_log(service_log, config)
    service_log.open(config.log_dir)
    generation = supervisor_generation()
    lock = ServiceLock(run_dir, "containerd", generation)
    if not await acquire_lock(lock, generation):
        return 1
    embedded = config.embedded_containerd
    running = ContainerdProcess.find(str(run_dir / "containerd" / "config.toml"), embedded.path if embedded else "")
    if embedded is None:
        log.info("the configuration asks for no embedded containerd")
        if running is not None:
            with closing(running):
                await _end(running)
        return 0
    if delay := lock.record_start(time.monotonic()):
        log.warning("containerd ended too often of late: waiting %.0f s", delay)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await signals.ending.wait()
    output = Path(config.log_dir) / "containerd.out"
    process = await _choose_process(running, config, output, signals)
    if process is None:
        return 1
    with closing(process):
        return await _watch(process, output, signals, lock)


async def _watch(process: ContainerdProcess, output: Path, signals: Signals, lock: ServiceLock) -> int:
    reload = asyncio.Event()
    signals.on_hangup = reload.set
    ended, *ends = [asyncio.ensure_future(work) for work in (process.wait(), signals.ending.wait(), reload.wait())]
    while not any(work.done() for work in (ended, *ends)):
        await asyncio.wait({ended, *ends}, timeout=_OUTPUT_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        _limit(output)
    if signals.handing_over.is_set():
        log.info("containerd runs on as process %s; the next supervisord's keeper watches it", process.pid)
        return 1
    if not ended.done():
        await _end(process)
    code = await ended
    asked_to_end = signals.ending.is_set()
    if asked_to_end:
        lock.record_end()
    (log.info if asked_to_end else log.error)("containerd ended with %s", "an unknown code" if code is None else code)
    return 1


async def _choose_process(
    process: ContainerdProcess | None, config: EffectiveConfig, output: Path, signals: Signals
) -> ContainerdProcess | None:
    """Return the containerd to keep: the running one, unless its configuration has changed, otherwise a new one.

    Return None where this process was signalled to end meanwhile; a running containerd has then ended, too.
    """
    embedded = config.embedded_containerd
    assert embedded is not None
    if process is not None and process.runs_by(embedded) and not signals.ending.is_set():
        log.info("containerd runs already as process %s: keeping it", process.pid)
        return process
    if process is not None:
        with closing(process):
            await _end(process)
    if signals.ending.is_set():
        return None
    if damaged := cni_results.remove_damaged(started_at(1)):  # process 1 shows when the machine booted
        what, names = "a power cut left %d files without content in %s; they are removed: %s", damaged[:_MAX_NAMES]
        log.warning(what, len(damaged), cni_results.DIRECTORY, ", ".join(names))
    await asyncio.to_thread(remove_left_rules, embedded.bridge)
    try:
        write_containerd_files(config)
    except OSError as error:  # such as a full disk; bootstrap has written them, most likely for the same version
        log.error("%s cannot be written: %s; the earlier one is used", error.filename, error.strerror)
    process = ContainerdProcess.start(embedded, output)
    log.info("containerd runs as process %s, its output is in %s", process.pid, output)
    return process


async def _end(process: ContainerdProcess) -> None:
    log.info("containerd, process %s, is ending; its containers stay as they are", process.pid)
    await process.end()


def _limit(output: Path) -> None:
    """Keep one earlier file. containerd appends, so its descriptor goes on at the start of the emptied file."""
    try:
        if output.stat().st_size > _MAX_OUTPUT_BYTES:
            shutil.copyfile(output, output.with_name(f"{output.name}.1"))
            os.truncate(output, 0)
    except OSError as error:
        log.warning("%s cannot be kept short: %s", output, error.strerror)


def main() -> NoReturn:
    """Run until containerd ends or a signal comes; exits the process."""
    run_program("containerd", keep)
