"""Reads from the record of a service's lock which process holds it.

Imports no event loop, because `bulkhead status` needs none.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from shared.process_identity import is_running


@dataclass(frozen=True)
class Holder:
    """A running process that holds a lock: its id, its identity (`shared.process_identity`), and the generation of the
    supervisord that started it ("" = none)."""

    pid: int
    process: str
    supervisord: str


def read_holder(path: Path) -> Holder | None:
    """Return the process that took the lock of this file last, if it runs and did not release it."""
    try:
        record = json.loads(path.read_bytes())
        holder = Holder(int(record["pid"]), str(record["process"]), str(record["supervisord"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return holder if is_running(holder.process) else None
