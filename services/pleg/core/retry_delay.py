"""How long to wait before the next try of something that failed."""

from shared.time.backoff import Backoff

RETRIES = Backoff(initial=0.1, cap=5.0)  # the kubelet's for a runtime in trouble (pods.md 0.1)


class RetryDelay:
    """100 ms, doubled with each failure in a row, up to 5 s."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def failing(self) -> bool:
        """The last try failed."""
        return self._failures > 0

    def failed(self) -> float:
        """One more failure; the seconds to wait now."""
        self._failures += 1
        return RETRIES.delay(self._failures)

    def succeeded(self) -> None:
        """The next failure is a first one again."""
        self._failures = 0
