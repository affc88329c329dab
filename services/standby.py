"""One process per service: become the one, or stand by behind the one that is, passing signals on to it.

An orphan of a killed supervisord keeps its lock and its work; the process the next supervisord starts waits here. To
supervisord it is the service: TERM and HUP reach the holder, and the exit comes when the holder has ended. One whose
own supervisord is killed ends: nobody would stop it once it had taken over.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

from bus.lock import ServiceLock

log = logging.getLogger(__name__)


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


async def acquire(lock: ServiceLock, signals: Signals, on_standby: Callable[[], None] = lambda: None) -> bool:
    """Hold the lock and return True; or False when the process was told to end and the holder has ended too, or when
    the process that started us has gone.

    `on_standby` is called once if the lock is held by another process.
    """
    if lock.try_acquire():
        return True
    log.warning("%s is running as process %s: standing by to take over", lock.path.stem, lock.holder() or "unknown")
    signals.on_hangup = lambda: pass_on(lock, signal.SIGHUP)
    on_standby()
    acquiring = asyncio.ensure_future(lock.acquire())
    ending = asyncio.ensure_future(signals.ending.wait())
    orphaned = asyncio.ensure_future(_parent_ended())
    await asyncio.wait({acquiring, ending, orphaned}, return_when=asyncio.FIRST_COMPLETED)
    signals.on_hangup = lambda: None
    if orphaned.done() and not acquiring.done() and not ending.done():
        log.warning("%s: standing by for nobody, as whoever started us has ended: ending", lock.path.stem)
        return False
    orphaned.cancel()
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


async def _parent_ended() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    parent = os.pidfd_open(os.getppid())
    loop.add_reader(parent, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(parent)
        os.close(parent)


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
        return any(fd.samefile(path) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists())
    except OSError:
        return False
