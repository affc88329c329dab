"""Converts the state of a shutdown to its record on disk and back, and to the file that a Go kubelet keeps (node.md 3
"State file"). Reads and writes no file.
"""

from typing import Any

import orjson
from msgspec import to_builtins

from services.podsync.core.shutdown.sequence import MAX_NAMED_PODS, Shutdown
from shared.model.frozen_copy import replace
from shared.text.json_text import json_bytes
from shared.time.timestamps import MAX_MOMENT, parse_rfc3339, rfc3339

STATE_FILE = "graceful_node_shutdown_state"  # below the root directory
MAX_STATE_BYTES = 4096  # of that file
_UNSET = "0001-01-01T00:00:00Z"  # as Go writes a time that is not set
_TYPES: dict[str, type | tuple[type, ...]] = {
    "boot": str,
    "signal": str,
    "began": (float, int),
    "group": int,
    "group_began": (float, int),
    "ended": (float, int),
    "unfinished": list,
}


def plain_shutdown(shutdown: Shutdown | None) -> dict[str, Any]:
    """Return the record, {} for no shutdown."""
    return {} if shutdown is None else to_builtins(shutdown) | {"unfinished": list(shutdown.unfinished)}


def read_shutdown(record: Any, now: float) -> Shutdown | None:
    """Return the shutdown of a record, with no moment after `now`; None where there is none, or one that is not
    understood."""
    if not isinstance(record, dict) or any(
        not isinstance(record.get(name), kind) or isinstance(record[name], bool) for name, kind in _TYPES.items()
    ):
        return None
    known = {name: record[name] for name in _TYPES}
    if not all(0 <= known[name] <= MAX_MOMENT for name in ("began", "ended", "group_began")):
        return None  # also one that is not a number
    known["unfinished"] = tuple(name for name in known["unfinished"] if isinstance(name, str))[:MAX_NAMED_PODS]
    shutdown = Shutdown(**known)
    return replace(shutdown, group_began=min(shutdown.group_began, now))


def is_unfinished(record: Any, boot: str) -> bool:
    """Return whether this boot of the machine ended in a shutdown before every pod had had its turn."""
    shutdown = read_shutdown(record, 0.0)
    return shutdown is not None and shutdown.boot == boot and not shutdown.is_over


def state_file(shutdown: Shutdown) -> bytes:
    """Return the content of the file that shows when the shutdown began and ended."""
    moments = {"startTime": shutdown.began, "endTime": shutdown.ended}
    return json_bytes({name: rfc3339(at) if at else _UNSET for name, at in moments.items()})


def read_state_file(content: bytes) -> tuple[float, float]:
    """Return when the newest shutdown began and ended, in seconds since the epoch; 0 = not set, or not understood."""
    try:
        document = orjson.loads(content) if len(content) <= MAX_STATE_BYTES else None
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        return 0.0, 0.0
    began, ended = (parse_rfc3339(str(document.get(name) or "")) or 0.0 for name in ("startTime", "endTime"))
    return max(0.0, began), max(0.0, ended)
