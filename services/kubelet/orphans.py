"""Ends what a killed kubelet left working, when the one after it is told to stop.

As a rule the next one's stand-bys pass its TERM on; this is for those that could not: not up yet, or killed. Knows the
locks of one run directory, and no more of the services.
"""

import fcntl
import os
import select
import signal
import time
from pathlib import Path

_PATIENCE = 10.0  # seconds a service gets to end, as supervisord gives its own
_TURN = 1.0


def end_orphans(run_dir: Path, patience: float = _PATIENCE) -> None:
    """Have whoever holds a service's lock in this run directory end, by TERM, then by KILL; wait until none does.

    Our own services have ended by now, and our supervisord's socket still keeps another kubelet from starting.
    """
    deadline = time.monotonic() + patience
    while held := [path.stem for path in sorted(run_dir.glob("locks/*.lock")) if _is_held(path)]:
        left = deadline - time.monotonic()
        _end(run_dir, held, signal.SIGTERM if left > 0 else signal.SIGKILL, max(left, _TURN))
        if left <= -_TURN:
            return


def _end(run_dir: Path, services: list[str], number: signal.Signals, patience: float) -> None:
    from bus.lock import ServiceLock
    from services.standby import pass_on  # only here: they bring asyncio

    deadline = time.monotonic() + patience
    for lock in [ServiceLock(run_dir, service) for service in services]:
        pass_on(lock, number)
    for path in [run_dir / "locks" / f"{service}.lock" for service in services]:
        pid = ServiceLock(run_dir, path.stem).holder()
        if pid is not None and _is_held(path):
            _wait(pid, deadline - time.monotonic())


def _wait(pid: int, seconds: float) -> None:
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return  # gone
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        poll.poll(max(seconds, 0.0) * 1000)
    finally:
        os.close(process)


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # gone, or not ours to read
    return False
