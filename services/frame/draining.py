"""Limits the processes that drain: they have handed over to their successor, and end with their last open session.
Each holds one of a few locks, so that a stop of the agent finds it.
"""

import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from bus.lock import ServiceLock
from services.frame.succession import signal_orphans, wait_for_end

_MAX_PROCESSES = 4  # of a service at the same time; the sessions of one more end
_GRACE_SECONDS = 1.0  # from SIGTERM to SIGKILL: they hold nothing that a successor needs


def take_place(run_dir: Path, service: str, generation: str) -> ServiceLock | None:
    """Acquire and return a lock for a process that drains; None = all are taken."""
    return next((lock for lock in places(run_dir, service, generation) if lock.try_acquire()), None)


def places(run_dir: Path, service: str, generation: str = "") -> Iterator[ServiceLock]:
    """Return the locks of processes that drain, taken or not."""
    return (ServiceLock(run_dir, f"{service}-draining-{number}", generation) for number in range(_MAX_PROCESSES))


def end_draining(run_dir: Path, services: Iterable[str]) -> None:
    """End the draining processes of these services whose supervisord has ended: SIGTERM, and SIGKILL after a second.
    Blocks until then."""
    locks = [lock for service in services for lock in places(run_dir, service)]
    wait_for_end(signal_orphans(locks, signal.SIGTERM), _GRACE_SECONDS)
    signal_orphans(locks, signal.SIGKILL)
