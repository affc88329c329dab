"""Ends the orphans of a killed kubelet if the next kubelet is stopped before its services have taken the locks.

The Debian package calls `python -m services.kubelet.orphans RUN_DIR` when it is removed, after the stop of the unit."""

import signal
import sys
from pathlib import Path

from bus.lock import ServiceLock
from services.frame.succession import signal_orphans, wait_for_end

_MAX_STOP_SECONDS = 10.0  # from SIGTERM to SIGKILL, as in supervisord.conf; after SIGKILL a tenth of it


def end_orphans(run_dir: Path, stop_seconds: float = _MAX_STOP_SECONDS) -> None:
    """End the orphans that hold a lock in this run directory, by SIGTERM, then by SIGKILL, and wait for them.

    Our own services have ended by now, and our supervisord's socket still keeps another kubelet from starting. The
    services of a supervisord that runs are left alone.
    """
    for number, seconds in ((signal.SIGTERM, stop_seconds), (signal.SIGKILL, stop_seconds / 10)):
        locks = [ServiceLock(run_dir, path.stem) for path in run_dir.glob("locks/*.lock")]
        wait_for_end(signal_orphans(locks, number), seconds)


if __name__ == "__main__":
    end_orphans(Path(sys.argv[1]))
