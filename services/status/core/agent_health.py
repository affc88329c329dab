"""Is the agent so well that systemd may be told so, as status sees it.

bootstrap questions supervisord, and its beat says when that is silent; while bootstrap is being started again, its own
silence is no fault. podsync's loop must turn. Times are CLOCK_MONOTONIC seconds.
"""

from collections.abc import Collection, Mapping

_ABSENT_AFTER = 30.0  # seconds without bootstrap's beat
_SYNC_LOOP_AT_LEAST = 300.0  # seconds the sync loop may stand, or twice the sync frequency if that is more


class AgentHealth:
    """What the beats said, and the verdict on it. `fatal` is the trouble of bootstrap's that counts."""

    def __init__(self, fatal: str, sync_frequency: float, now: float) -> None:
        self._fatal, self._is_fatal = fatal, False
        self._heard_bootstrap = now
        self._sync_loop_limit = max(2 * sync_frequency, _SYNC_LOOP_AT_LEAST)
        self._sync_loop_turned: float | None = None

    def note_beat(self, service: str, progress: Mapping[str, float], troubles: Collection[str], now: float) -> None:
        """A beat was heard at `now`."""
        if service == "bootstrap":
            self._heard_bootstrap, self._is_fatal = now, self._fatal in troubles
        if service == "podsync" and "sync" in progress:
            self._sync_loop_turned = progress["sync"]

    def is_well(self, now: float) -> bool:
        """The verdict; what was never heard of is no fault yet."""
        turned = self._sync_loop_turned
        absent = now - self._heard_bootstrap > _ABSENT_AFTER
        return not self._is_fatal and not absent and (turned is None or now - turned <= self._sync_loop_limit)
