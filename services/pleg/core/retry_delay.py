"""Decides how long to wait before the next try of a failed call."""

from shared.time.backoff import Backoff

RETRIES = Backoff(initial=0.1, cap=5.0)  # as the kubelet's while the runtime fails (pods.md 0.1)


class RetryDelay:
    """Counts failures in a row. The delay is 100 ms, doubled with each further failure, up to 5 s."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def failing(self) -> bool:
        """Whether the last try failed."""
        return self._failures > 0

    def failed(self) -> float:
        """Count one more failure, and return the seconds to wait now."""
        self._failures += 1
        return RETRIES.delay(self._failures)

    def succeeded(self) -> None:
        """Note a success, so that the next failure is a first one."""
        self._failures = 0
