"""The program `containerd` of supervisord: the one keeper of the embedded containerd.

Takes the lock `containerd`, runs containerd as its child, ends with it. containerd dies with this process, however
that ends; its shims, and so the pods, do not. TERM is passed on; HUP means: end containerd, for supervisord to start it
anew with the files bootstrap wrote. As standby behind an orphan it only passes signals on. Exits 0, which supervisord
takes for good, only where no containerd is wanted; told to end by anybody but supervisord, it is to be started again.
"""

import asyncio
import ctypes
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from bus.lock import ServiceLock
from bus.manifest import prepare_run_dir
from services import standby
from shared.config.effective import EffectiveConfig
from shared.config.loader import load_effective
from shared.config.places import find_places
from shared.errors import OperatorError
from shared.log import LogFile, configure_log, start_log

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_LARGEST_OUTPUT = 16 * 2**20
_LOOK_AT_OUTPUT = 60.0  # seconds; containerd does not rotate what it prints, and tells nobody how much it is


async def keep(service_log: LogFile) -> int:
    """The whole life of the wrapper; returns the exit code: 0 where nobody wants a containerd, else 1."""
    signals = standby.Signals(on_second=lambda: os._exit(1))
    signals.install()
    run_dir = Path(find_places().run_dir)
    prepare_run_dir(run_dir)
    config = _load(run_dir)
    configure_log(service_log, config)
    service_log.open(config.log_dir)
    lock = ServiceLock(run_dir, "containerd")
    if not await standby.acquire(lock, signals):
        return 1
    config = _load(run_dir)  # a standby may have waited for days
    embedded = config.embedded_containerd
    if embedded is None:
        log.error("the configuration asks for no embedded containerd")
        return 0
    if delay := lock.record_start(time.monotonic()):
        log.warning("containerd ended too often of late: waiting %.0f s", delay)
        try:
            async with asyncio.timeout(delay):
                await signals.ending.wait()
            return 1
        except TimeoutError:
            pass
    output = Path(config.log_dir) / "containerd.out"
    child = await _start(embedded.path, embedded.config_file, output)
    signals.on_hangup = child.terminate
    log.info("containerd runs as process %s, its output is in %s", child.pid, output)
    ended = asyncio.ensure_future(child.wait())
    ending = asyncio.ensure_future(signals.ending.wait())
    while not ended.done() and not ending.done():
        await asyncio.wait({ended, ending}, timeout=_LOOK_AT_OUTPUT, return_when=asyncio.FIRST_COMPLETED)
        _limit(output)
    if ending.done() and not ended.done():
        log.info("containerd is ending; its containers stay as they are")
        child.terminate()
    code = await ended
    told_to_end = signals.ending.is_set()
    if told_to_end:
        lock.record_end()
    (log.info if told_to_end else log.error)("containerd ended with %s", code)
    return 1


def _load(run_dir: Path) -> EffectiveConfig:
    try:
        return load_effective(str(run_dir))
    except FileNotFoundError as error:
        raise OperatorError("is not there yet", where=str(error.filename), remedy="start bootstrap first") from error


async def _start(path: str, config_file: str, output: Path) -> asyncio.subprocess.Process:
    binary = shutil.which(path)
    if binary is None:
        raise OperatorError("is not an executable", where=path, remedy="install containerd, or set its path")
    fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        # The lock's descriptor stays here: a shim that inherited it would hold the lock for the life of a pod.
        return await asyncio.create_subprocess_exec(
            binary, "--config", config_file, stdin=asyncio.subprocess.DEVNULL, stdout=fd, stderr=fd,
            close_fds=True, preexec_fn=_die_with_parent(os.getpid()),
        )  # fmt: skip
    finally:
        os.close(fd)


def _die_with_parent(parent: int) -> Callable[[], None]:
    """For the child between fork and exec: be killed when the parent ends, also if it just did."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arm() -> None:
        os.umask(0o022)  # containerd sets modes itself where they matter, and expects the usual umask elsewhere
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return arm


def _limit(output: Path) -> None:
    """Keep one earlier file. containerd appends, so its descriptor goes on at the start of the emptied file."""
    try:
        if output.stat().st_size > _LARGEST_OUTPUT:
            shutil.copyfile(output, output.with_name(f"{output.name}.1"))
            os.truncate(output, 0)
    except OSError as error:
        log.warning("%s cannot be kept short: %s", output, error.strerror)


def main() -> NoReturn:
    """Run until containerd ends or we are told to; exits the process."""
    os.umask(0o077)
    service_log = start_log("containerd")
    code = 1
    try:
        code = asyncio.run(keep(service_log))
    except OperatorError as error:
        log.error("%s", error)
    except Exception:
        log.critical("the containerd wrapper failed", exc_info=True)
    service_log.finish()
    os._exit(code)


if __name__ == "__main__":
    main()
