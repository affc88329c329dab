"""Decides which of many equal log lines are written, so that clients cannot fill the log. Asks no clock."""

INTERVAL_SECONDS = 60.0


class LogInterval:
    """Counts events by kind. The kinds must be a fixed set, because each is remembered."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._logged: dict[str, float] = {}

    def count(self, kind: str, now: float) -> int:
        """Count an event of this kind at `now` (monotonic seconds). Return how many there were since the last line,
        including this one, if a line is due; else 0."""
        self._counts[kind] = counted = self._counts.get(kind, 0) + 1
        if now - self._logged.get(kind, float("-inf")) < INTERVAL_SECONDS:
            return 0
        self._logged[kind], self._counts[kind] = now, 0
        return counted
