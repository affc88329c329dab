"""Named points at which tests kill a process: `CRASH_AT` is empty in production and then this costs one comparison.

`CRASH_AT=podsync.calling` kills the first process to reach that point, once per run directory. `CRASH_AT=@<file>` reads
the file at each point and kills when it names the point, after removing the file. A name covers everything below it:
`podsync.calling` matches `podsync.calling.StartContainer`.
"""

import os
import signal
from pathlib import Path

from shared.agent.places import find_places

_CRASH_AT = os.environ.get("CRASH_AT", "")


def crash_point(name: str) -> None:
    """Die here by SIGKILL if the environment asks for it."""
    if _CRASH_AT and _claim(_CRASH_AT, name):
        os.kill(os.getpid(), signal.SIGKILL)


def is_armed(name: str) -> bool:
    """Return whether `crash_point(name)` would kill now; lets a caller get into the middle of something first."""
    if not _CRASH_AT:
        return False
    try:
        wanted = Path(_CRASH_AT[1:]).read_text(encoding="utf-8").strip() if _CRASH_AT.startswith("@") else _CRASH_AT
    except OSError:
        return False
    return _covers(wanted, name)


def _covers(wanted: str, name: str) -> bool:
    return bool(wanted) and (name == wanted or name.startswith(wanted + "."))


def _claim(crash_at: str, name: str) -> bool:
    """Return whether this process is the one to die; at most one claim succeeds."""
    try:
        if crash_at.startswith("@"):
            file = Path(crash_at[1:])
            if not _covers(file.read_text(encoding="utf-8").strip(), name):
                return False
            file.unlink()
            return True
        if not _covers(crash_at, name):
            return False
        marker = Path(find_places().run_dir) / f"crashed.{crash_at}"
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return True
    except OSError:
        return False
