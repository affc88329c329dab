"""Decides from the beats whether the agent is healthy, so that systemd's watchdog is pinged.

bootstrap queries supervisord and reports in its beat when supervisord does not answer; while bootstrap is being
restarted, its missing beats are no fault. podsync's loop must turn. Times are CLOCK_MONOTONIC seconds.
"""

from collections.abc import Collection, Mapping

_ABSENT_AFTER_SECONDS = 30.0  # without bootstrap's beat
_MIN_SYNC_LOOP_SECONDS = 300.0  # that a turn of the sync loop may take, or twice the sync frequency if that is more


class AgentHealth:
    """Keeps the newest beats, and decides by them whether systemd's watchdog is pinged. `fatal`: the trouble in
    bootstrap's beat that ends the pings."""

    def __init__(self, fatal: str, sync_frequency: float, now: float) -> None:
        self._fatal, self._is_fatal = fatal, False
        self._bootstrap_beat = now
        self._sync_loop_limit = max(2 * sync_frequency, _MIN_SYNC_LOOP_SECONDS)
        self._sync_loop_turned: float | None = None

    def note_beat(self, service: str, progress: Mapping[str, float], troubles: Collection[str], now: float) -> None:
        """Note a beat that was received at `now`."""
        if service == "bootstrap":
            self._bootstrap_beat, self._is_fatal = now, self._fatal in troubles
        if service == "podsync" and "sync" in progress:
            self._sync_loop_turned = progress["sync"]

    def is_well(self, now: float) -> bool:
        """Return whether the agent is healthy; a service that has not sent its first beat is no fault."""
        turned = self._sync_loop_turned
        absent = now - self._bootstrap_beat > _ABSENT_AFTER_SECONDS
        return not self._is_fatal and not absent and (turned is None or now - turned <= self._sync_loop_limit)
