"""Takes a service's lock, also from an orphan, so that one process of the newest supervisord runs the service.
An orphan is a process whose supervisord has ended. It gets HAND_OVER, and SIGKILL when it still holds the lock after
its grace. A holder whose supervisord runs belongs to another agent. A process whose own supervisord has ended takes no
lock, because a newer supervisord may have started its successor.
"""

import asyncio
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from bus.lock import ServiceLock
from bus.manifest import Holder
from services.frame.generation import same_supervisord, supervisord_runs
from services.frame.signals import HAND_OVER
from shared.errors import OperatorError
from shared.process.identity import identity_of

log = logging.getLogger(__name__)

GRACE_SECONDS = 1.0  # for an orphan to release the lock
SHORT_GRACE_SECONDS = 0.4  # for an orphaned bootstrap, which has no sessions, and for which other services wait


async def acquire_lock(lock: ServiceLock, generation: str, grace: float = GRACE_SECONDS) -> bool:
    """Take the lock and return True; return False where our own supervisord has ended.
    `generation` is ours, "" without a supervisord; `grace` is in seconds. Raises OperatorError where a process of
    another agent holds the lock, or an orphan may not be signalled.
    """
    if _may_begin(generation) and lock.try_acquire():
        return True
    acquiring = asyncio.ensure_future(lock.acquire())
    signalled, reported = "", False
    try:
        while _may_begin(generation):
            holder = lock.held_by()
            if holder is not None and not same_supervisord(holder.supervisord, generation):
                _refuse_living_agent(lock, holder)
                number = signal.SIGKILL if holder.process == signalled else HAND_OVER
                log.warning("%s: process %s is an orphan: %s", lock.path.stem, holder.pid, number.name)
                send_signal(holder, number)
                signalled = holder.process
            await asyncio.wait({acquiring}, timeout=grace)
            if acquiring.done():
                acquiring.result()
                return True
            if holder is None and lock.held_by() is None and not reported:
                reported = True
                log.warning(
                    "%s: %s is held by an unknown process (end it: `fuser` names it)", lock.path.stem, lock.path
                )
    finally:
        acquiring.cancel()
    log.warning("%s: the supervisord that started this process has ended: ending", lock.path.stem)
    return False


def is_orphan(holder: Holder) -> bool:
    """Return whether the holder was started by a supervisord that has ended."""
    return holder.supervisord != "" and not supervisord_runs(holder.supervisord)


def send_signal(holder: Holder, number: signal.Signals) -> None:
    """Signal exactly this process; nothing happens where it has ended, also if its id was reused. Raises
    OperatorError."""
    try:
        process = os.pidfd_open(holder.pid)
        try:
            # Compared after the open, so that the descriptor is of this process.
            if identity_of(holder.pid) == holder.process:
                signal.pidfd_send_signal(process, number)
        finally:
            os.close(process)
    except ProcessLookupError:
        return
    except OSError as error:
        what = f"cannot be signalled: {error.strerror}"
        raise OperatorError(what, where=f"process {holder.pid}", remedy="end it by hand") from error


def signal_orphans(locks: Iterable[ServiceLock], number: signal.Signals) -> list[Holder]:
    """Signal each orphan that holds one of these locks, where permitted, and return all of them."""
    orphans = [holder for lock in locks if (holder := lock.held_by()) is not None and is_orphan(holder)]
    for orphan in orphans:
        with suppress(OperatorError):  # it is another user's
            send_signal(orphan, number)
    return orphans


def wait_for_end(processes: Iterable[Holder], seconds: float) -> None:
    """Block until all processes have ended, at most `seconds`."""
    deadline = time.monotonic() + seconds
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            continue  # the process has ended
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(deadline - time.monotonic(), 0.0) * 1000)
        finally:
            os.close(descriptor)


@contextmanager
def supervisord_watched(generation: str, on_end: Callable[[], None]) -> Iterator[None]:
    """Call `on_end` in the running loop when the supervisord of this generation ends, while the block runs."""
    loop, process = asyncio.get_running_loop(), int(generation.split("/")[1]) if generation else 0
    try:
        descriptor = os.pidfd_open(process) if process else -1
    except OSError:
        descriptor = -1
    if process and not supervisord_runs(generation):
        on_end()
    if descriptor < 0:
        yield
        return
    loop.add_reader(descriptor, on_end)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _may_begin(generation: str) -> bool:
    return generation == "" or supervisord_runs(generation)


def _refuse_living_agent(lock: ServiceLock, holder: Holder) -> None:
    if not is_orphan(holder):
        what = f"{lock.path.stem} is running already, as process {holder.pid} of another agent"
        remedy = "stop that agent, or give this one another run directory"
        raise OperatorError(what, where=str(lock.path), remedy=remedy)
