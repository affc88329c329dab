"""The clock podsync decides by: the wall clock's as its first life since the machine started began, and steady since.

Back-offs and deadlines must neither fire nor wait when somebody sets the clock, nor when that happens between two lives
of the process; so the base is on disk, with the number of this life and the start of the machine it holds for.
"""

import logging
from typing import Any

from shared.boot_id import boot_id
from shared.checkpoint import Checkpoint, Kept
from shared.clock import Clock

log = logging.getLogger(__name__)

RECORD = "boot"
SKEW_SECONDS = 2.0  # a wall clock that goes away from the steady one by more was set


class SteadyClock:
    """One per life. `boot`: the number of this life, larger than any before. `machine_started`: the machine was started
    anew since the life before. `skew`: seconds by which the wall clock has been set away from this one, as of the last
    `now`."""

    def __init__(self, clock: Clock, checkpoint: Checkpoint, last: dict[str, Any]) -> None:
        """`last`: the record of the life before, {} = none."""
        self._clock = clock
        base, machine = last.get("base"), boot_id()
        same = isinstance(base, float) and last.get("machine") == machine
        self.machine_started = bool(last) and not same
        self._base: float = base if same and isinstance(base, float) else clock.wall() - clock.monotonic()
        self._said = self.skew = clock.wall() - clock.monotonic() - self._base
        count = last.get("count", 0)
        self.boot = count + 1 if isinstance(count, int) else int(clock.wall())
        saved = {"count": self.boot, "base": self._base, "machine": machine}
        if checkpoint.save(RECORD, saved) is not Kept.ON_DISK:
            self.boot = max(self.boot, int(clock.wall()))  # larger than any before though it cannot be written down

    def now(self) -> float:
        """Seconds of this clock. Says so when somebody has set the wall clock."""
        now = self._base + self._clock.monotonic()
        self.skew = self._clock.wall() - now
        if abs(self.skew - self._said) > SKEW_SECONDS:
            by = self.skew - self._said
            log.warning("the clock was set by %+.0f s: deadlines and back-offs go on as they were", by)
            self._said = self.skew
        return now
