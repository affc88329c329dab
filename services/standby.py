"""One process per service: become the one, or stand by behind the one that is, passing signals on to it.

An orphan of a killed supervisord keeps its lock and its work; the process the next supervisord starts waits here. To
supervisord it is the service: TERM and HUP reach the holder, and the exit comes when the holder has ended. One whose
own supervisord is killed ends, also when that was before it got here: nobody would stop it once it had taken over.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bus.lock import ServiceLock
from services.generation import supervisor_process

log = logging.getLogger(__name__)

_LOOK_AT_PARENT = 5.0  # seconds; only where the kernel gives nobody a pidfd, and so nobody tells


class Signals:
    """SIGTERM and SIGINT as `ending` (a second one calls `on_second`), SIGHUP as a call of `on_hangup`."""

    def __init__(self, on_second: Callable[[], None]) -> None:
        self.ending = asyncio.Event()
        self.on_second = on_second
        self.on_hangup: Callable[[], None] = lambda: None

    def install(self) -> None:
        """Take the signals of this process; needs the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _hang_up(self) -> None:
        self.on_hangup()

    def _end(self) -> None:
        if self.ending.is_set():
            self.on_second()
        self.ending.set()


async def acquire(
    lock: ServiceLock, signals: Signals, meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> bool:
    """Hold the lock and return True; or False when the process was told to end and the holder has ended too, or when
    whoever started us has gone: then also with the lock free, for nobody would ever stop us or start us again.

    `meanwhile` runs while the lock is held by another process, and has ended when this returns.
    """
    process = supervisor_process()
    parent = _open(process)
    try:
        if os.getppid() != process:  # opened first and judged then: ids are used again
            log.warning("%s: whoever started us has ended already: ending", lock.path.stem)
            return False
        if lock.try_acquire():
            return True
        log.warning("%s is running as process %s: standing by to take over", lock.path.stem, lock.holder() or "unknown")
        work = asyncio.ensure_future(_told(meanwhile)) if meanwhile else None
        try:
            return await _stand_by(lock, signals, _ended(process, parent))
        finally:
            if work is not None:
                await _end(work)
    finally:
        if parent is not None:
            os.close(parent)


async def _stand_by(lock: ServiceLock, signals: Signals, parent_ended: Coroutine[Any, Any, None]) -> bool:
    signals.on_hangup = lambda: pass_on(lock, signal.SIGHUP)
    acquiring = asyncio.ensure_future(lock.acquire())
    ending = asyncio.ensure_future(signals.ending.wait())
    orphaned = asyncio.ensure_future(parent_ended)
    await asyncio.wait({acquiring, ending, orphaned}, return_when=asyncio.FIRST_COMPLETED)
    signals.on_hangup = lambda: None
    if orphaned.done() and not acquiring.done() and not ending.done():
        log.warning("%s: standing by for nobody, as whoever started us has ended: ending", lock.path.stem)
        return False
    await _end(orphaned)
    if acquiring.done():
        ending.cancel()
        acquiring.result()
        if not signals.ending.is_set():
            log.warning("%s: the process before us has ended, taking over", lock.path.stem)
            return True
    else:
        pass_on(lock, signal.SIGTERM)
        await acquiring
    lock.release()
    return False


def _open(process: int) -> int | None:
    """A pidfd, None where there is none to be had: the process is gone, or the kernel or a sandbox refuses it."""
    try:
        return os.pidfd_open(process)
    except OSError:
        return None


async def _ended(process: int, parent: int | None) -> None:
    while parent is None and os.getppid() == process:
        await asyncio.sleep(_LOOK_AT_PARENT)
    if parent is None:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(parent, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(parent)


async def _told(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do it; what it fails with is told at once, for it may be days until somebody waits for it."""
    try:
        await work()
    except Exception:
        log.exception("what is to be done while standing by failed")


async def _end(work: "asyncio.Future[None]") -> None:
    """Cancel it and wait until it has ended; nobody depends on how."""
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work


def pass_on(lock: ServiceLock, number: signal.Signals) -> None:
    """Send the signal to the lock's holder; nothing when it is gone, or its pid is another process's by now."""
    pid = lock.holder()
    if pid is None or pid == os.getpid() or not _has_open(pid, lock.path):
        return
    log.info("%s: passing %s on to process %s", lock.path.stem, number.name, pid)
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        log.error("%s: may not signal process %s (run as its user)", lock.path.stem, pid)


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(_is(fd, path) for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _is(fd: Path, path: Path) -> bool:
    try:
        return fd.samefile(path)
    except OSError:  # closed while we look, as any but the one we look for may be
        return False
