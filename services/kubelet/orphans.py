"""Ends what a killed kubelet left working, where the next one is stopped before its services have taken over."""

import signal
from pathlib import Path

from bus.lock import ServiceLock
from services.frame.takeover import signal_orphans, wait_for_end

_PATIENCE = 10.0  # seconds they get to end, as supervisord gives its own; a killed one gets a tenth


def end_orphans(run_dir: Path, patience: float = _PATIENCE) -> None:
    """End the orphans that hold a lock in this run directory, by TERM, then by KILL, and wait for them.

    Our own services have ended by now, and our supervisord's socket still keeps another kubelet from starting.
    """
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, patience / 10)):
        locks = [ServiceLock(run_dir, path.stem) for path in run_dir.glob("locks/*.lock")]
        wait_for_end(signal_orphans(locks, number), seconds)
