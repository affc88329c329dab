"""Raises the time for which logind waits at most for those who delay a shutdown (node.md 3 "Start" 2)."""

import asyncio
import math
from pathlib import Path

from shared.files.atomic import write_atomically
from shared.logind.connection import LogindConnection, LogindError

DROP_IN = Path("/etc/systemd/logind.conf.d/99-kubelet.conf")
WAITS_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6)  # between two looks whether logind has read the drop-in


def drop_in_text(seconds: float) -> str:
    """Return the drop-in of logind's configuration that has it wait for this long."""
    return f"# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={math.ceil(seconds)}\n"


async def raise_max_delay(connection: LogindConnection, seconds: float) -> None:
    """Let logind wait for at least this long, by a drop-in of its configuration where it would not. Raises
    LogindError."""
    path = DROP_IN
    if (found := await connection.max_delay_seconds()) >= seconds:
        return
    try:
        await asyncio.to_thread(_write, path, drop_in_text(seconds))
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror or error}"
        raise LogindError(f"{_too_short(found, seconds)}, and {why}") from error
    await connection.reload()
    for wait in WAITS_SECONDS:
        if (found := await connection.max_delay_seconds()) >= seconds:
            return
        await asyncio.sleep(wait)
    if (found := await connection.max_delay_seconds()) < seconds:
        raise LogindError(f"{_too_short(found, seconds)}: look for another InhibitDelayMaxSec after {path}")


def _too_short(found: float, seconds: float) -> str:
    return f"logind waits {found:g} s at most for a shutdown, and pods have {seconds:g} s"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_atomically(path, text.encode(), 0o644)
