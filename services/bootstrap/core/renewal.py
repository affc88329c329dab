"""Decides when an exec plugin is run again: before its credentials end, after a failure, and after a 401. Pure."""

from shared.time.backoff import Backoff

_RETRIES = Backoff(initial=1.0, cap=60.0)
_RETRIES_WITHOUT = Backoff(initial=1.0, cap=8.0)  # without credentials; a node joins within 10 s of its network
_RUNS = Backoff(initial=2.0, cap=60.0, reset_after=600.0)  # after a refusal
_MIN_DELAY_SECONDS = 1.0
_SHARE = 0.8  # of the time that is left; the rest is for attempts that fail
_MAX_DELAY_SECONDS = 86400.0  # so that a machine that slept, or a clock that was set, is detected within a day


def seconds_until_renewal(expires_at: float, wall: float) -> float | None:
    """Return the seconds to wait; None = the credentials do not end. Both are wall seconds, `expires_at` 0 = never."""
    if not expires_at:
        return None
    return min(max((expires_at - wall) * _SHARE, _MIN_DELAY_SECONDS), _MAX_DELAY_SECONDS)


def retry_delay(failures: int, *, without: bool = False) -> float | None:
    """Return the seconds before the next attempt after so many failures in a row; None without a failure. `without`: no
    credentials are in force meanwhile."""
    return (_RETRIES_WITHOUT if without else _RETRIES).delay(failures) or None


class RefusalPace:
    """Paces the runs that follow a 401: the first at once, each further one after a pause that doubles up to 60 s.

    So a plugin whose credentials are refused again is not run for every request. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._runs = 0
        self._last = float("-inf")

    def due_in(self, now: float) -> float:
        """Return the seconds until the plugin may be run for a refusal."""
        if _RUNS.is_reset(self._last, now):
            self._runs = 0
        return max(0.0, self._last + _RUNS.delay(self._runs) - now)

    def ran(self, now: float) -> None:
        """Note that the plugin is run now."""
        self._runs, self._last = self._runs + 1, now
