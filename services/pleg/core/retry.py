"""How long to wait before the next try of something that failed."""

FIRST_SECONDS, LONGEST_SECONDS = 0.1, 5.0  # the kubelet's own for a runtime in trouble (pods.md 0.1)


class Retry:
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
        return min(FIRST_SECONDS * 2.0 ** (self._failures - 1), LONGEST_SECONDS)

    def succeeded(self) -> None:
        """The next failure is a first one again."""
        self._failures = 0
