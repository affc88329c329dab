"""Moments and durations as Kubernetes writes them. Moments are seconds since the epoch; pure."""

from datetime import UTC, datetime
from functools import lru_cache

MAX_MOMENT = 253402300799.0  # seconds since the epoch: the end of the year 9999


def rfc3339(wall: float) -> str:
    """Whole seconds in UTC, as in API objects: `2026-01-02T03:04:05Z`."""
    return _whole_seconds(round(wall * 1_000_000) // 1_000_000)


@lru_cache(1024)
def _whole_seconds(wall: int) -> str:
    return f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%dT%H:%M:%SZ}"


def rfc3339_micro(wall: float) -> str:
    """Return microseconds in UTC, as in the times of events: `2026-01-02T03:04:05.123456Z`."""
    return f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def local_text(moment: float | str, *, milliseconds: bool = False) -> str:
    """Return a moment, seconds since the epoch or RFC 3339, as every text for an operator has it: the local time of
    this machine, `2026-01-02 03:04:05`, with `milliseconds` `2026-01-02 03:04:05.678`. Return what is no moment as it
    is."""
    seconds = parse_rfc3339(moment) if isinstance(moment, str) else moment
    try:
        found = datetime.fromtimestamp(float("nan") if seconds is None else seconds).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(moment)
    return found.isoformat(" ", "milliseconds" if milliseconds else "seconds")[: 23 if milliseconds else 19]


def go_duration(seconds: float) -> str:
    """Return the duration as Go prints a time.Duration of at least a millisecond, to the millisecond: `1m30.5s`,
    `450ms`, `2h0m0s`."""
    milliseconds = round(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def parse_rfc3339(text: str) -> float | None:
    """Return wall seconds of an API object's time, None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None
