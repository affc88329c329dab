"""Names a process so that no other process, earlier or later, has the same name: process ids are used again."""

import os
from pathlib import Path

from shared.host.boot_id import boot_id

_ENDED = ("Z", "X", "x")
_TICKS = os.sysconf("SC_CLK_TCK")


def identity_of(process: int) -> str:
    """`<boot id>/<process id>/<start in clock ticks>`; "" when the process has ended, also while it is a zombie."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state in _ENDED else f"{boot_id()}/{process}/{fields[18]}"


def started_at(process: int | str) -> float:
    """Return seconds since the epoch at which the process (its id, or `self`) was started; 0 when /proc does not show
    it.
    """
    try:
        ticks = int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        lines = Path("/proc/stat").read_text(encoding="utf-8").splitlines()
        boot = next((int(line.split()[1]) for line in lines if line.startswith("btime ")), 0)
    except (OSError, ValueError, IndexError):
        return 0.0
    return boot + ticks / _TICKS if boot else 0.0


def is_running(identity: str) -> bool:
    """Return whether the process that `identity_of` named so runs."""
    _, _, process = identity.rpartition("/")[0].rpartition("/")
    return process.isdigit() and identity_of(int(process)) == identity
