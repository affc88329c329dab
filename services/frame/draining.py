"""Processes that have handed over to their successor and end with their last open session: how many there may be.

Each holds one of a few locks of its own, so that a stop of the agent finds it.
"""

import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from bus.lock import ServiceLock
from services.frame.takeover import signal_orphans, wait_for_end

_MOST = 4  # at the same time; one more ends with its sessions
_GRACE = 1.0  # seconds from SIGTERM to SIGKILL: they hold nothing that a successor needs


def take_place(run_dir: Path, service: str, generation: str) -> ServiceLock | None:
    """A lock, held, for a process that drains; None when all are taken."""
    return next((lock for lock in places(run_dir, service, generation) if lock.try_acquire()), None)


def places(run_dir: Path, service: str, generation: str = "") -> Iterator[ServiceLock]:
    """The locks of those that drain, taken or not."""
    return (ServiceLock(run_dir, f"{service}-draining-{number}", generation) for number in range(_MOST))


def end_draining(run_dir: Path, services: Iterable[str]) -> None:
    """End those of these services whose supervisord has ended: SIGTERM, and SIGKILL after a grace. Blocks so long."""
    locks = [lock for service in services for lock in places(run_dir, service)]
    wait_for_end(signal_orphans(locks, signal.SIGTERM), _GRACE)
    signal_orphans(locks, signal.SIGKILL)
