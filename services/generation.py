"""Which supervisord this process was started by. Configuration left by an earlier one is not taken for today's."""

import os
from pathlib import Path

from shared.boot_id import boot_id


def supervisor_generation() -> str:
    """An identity of the parent supervisord, "" when there is none. Ask early: orphans have another parent."""
    if os.environ.get("SUPERVISOR_ENABLED") != "1":
        return ""
    parent = os.getppid()
    try:
        started = Path(f"/proc/{parent}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot_id()}/{parent}/{started}"
