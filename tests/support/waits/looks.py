"""Decides how long a test that waits for another process pauses between two looks.

Most looks ask the agent, its runtime or an API server, which costs the CPU that they need. Where they send no event, a
short wait looks often, and a longer one pauses for a tenth of the time that it has lasted."""

LEAST_SECONDS = 0.02
_SHARE, _MOST_SECONDS = 0.1, 0.25  # longer pauses would miss states that last for a second


def pause_after(waited: float, least: float = LEAST_SECONDS) -> float:
    """Return the seconds until the next look of a wait that has lasted `waited` seconds, `least` or more."""
    return max(least, min(_SHARE * waited, _MOST_SECONDS))
