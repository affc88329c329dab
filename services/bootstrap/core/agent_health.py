"""Decides for bootstrap whether the agent is healthy, so that systemd's watchdog is pinged.

A service that ends is restarted by supervisord, and is no reason to restart the agent. So two things count: whether
supervisord itself still answers, and whether podsync's loop turns. Times are CLOCK_MONOTONIC seconds.
"""

from collections.abc import Collection, Mapping

_MIN_SYNC_LOOP_SECONDS = 300.0  # that a turn of the sync loop may take, or twice the sync frequency if that is more
_MAX_TIMEOUT_SECONDS = 10.0


class AgentHealth:
    """Keeps the beats and supervisord's answers, and decides. `sync_frequency`: seconds."""

    def __init__(self, services: Collection[str], sync_frequency: float) -> None:
        self._missing = set(services)
        self._sync_loop_limit = max(2 * sync_frequency, _MIN_SYNC_LOOP_SECONDS)
        self._sync_loop_turned: float | None = None
        self.supervisord_answers = True

    def note_beat(self, service: str, progress: Mapping[str, float]) -> bool:
        """Note a beat. Return True once: when every service has sent one."""
        if service == "podsync" and "sync" in progress:
            self._sync_loop_turned = progress["sync"]
        waited = bool(self._missing)
        self._missing.discard(service)
        return waited and not self._missing

    def is_well(self, now: float) -> bool:
        """Return whether the agent is healthy; a sync loop that was never reported does not count yet."""
        turned = self._sync_loop_turned
        return self.supervisord_answers and (turned is None or now - turned <= self._sync_loop_limit)


def poll_times(interval: float) -> tuple[float, float]:
    """Return the seconds between two calls of supervisord, and those for an answer, so that a missing answer is known
    before the next ping."""
    return interval / 2, min(_MAX_TIMEOUT_SECONDS, interval / 2)
