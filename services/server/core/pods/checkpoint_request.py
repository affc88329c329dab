"""Decides the timeout of a checkpoint request and the name of its archive (server.md 15.1). Asks no runtime."""

from datetime import datetime

from services.server.core.go_text import parse_int64, parse_query

MAX_TIMEOUT_SECONDS = 4 * 3600  # no request takes longer


def checkpoint_timeout(query: str) -> int:
    """Return the last `timeout` of a raw query in seconds, 0 = the runtime's. Raise ValueError for no integer."""
    values = parse_query(query).get("timeout", ["0"])
    return min(max(parse_int64(values[-1]), 0), MAX_TIMEOUT_SECONDS)


def archive_name(namespace: str, pod: str, container: str, now: datetime) -> str:
    """Return the file name of the archive; `now` has a time zone."""
    moment = now.strftime("%Y-%m-%dT%H:%M:%S%z")
    zone = "Z" if moment[-5:] in ("+0000", "-0000") else f"{moment[-5:-2]}:{moment[-2:]}"
    return f"checkpoint-{pod}_{namespace}-{container}-{moment[:-5]}{zone}.tar"
