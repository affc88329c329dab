"""When to ask an exec plugin again: before what it gave ends, and after a failure with growing pauses. Pure."""

_FIRST, _LONGEST = 1.0, 60.0  # seconds
_LONGEST_WITHOUT = 8.0  # seconds while there are no credentials at all: a node joins within ten of its network
_SHARE = 0.8  # of the time that is left; the rest is for attempts that fail
_FARTHEST = 86400.0  # seconds; a machine that slept, or a clock that was set, is noticed within a day


def seconds_until_renewal(expires_at: float, wall: float) -> float | None:
    """How long to wait; None = what we have does not end. Both in wall seconds, `expires_at` 0 = never."""
    if not expires_at:
        return None
    return min(max((expires_at - wall) * _SHARE, _FIRST), _FARTHEST)


def retry_delay(failures: int, *, without: bool = False) -> float | None:
    """Seconds before the next attempt after so many failures in a row; None without one.

    `without`: no credentials are in force meanwhile.
    """
    longest = _LONGEST_WITHOUT if without else _LONGEST
    return min(_FIRST * 2.0 ** min(failures - 1, 16), longest) if failures > 0 else None
