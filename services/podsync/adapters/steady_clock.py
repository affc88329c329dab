"""The clock podsync decides by: the wall clock's time at its first start since the machine started, steady since.

A change of the wall clock must neither fire nor delay back-offs and deadlines, nor must a change between two processes;
so the base is on disk, with the start number and the start of the machine that it belongs to.
"""

import logging
from typing import Any

from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.host.boot_id import boot_id
from shared.time.clock import Clock

log = logging.getLogger(__name__)

RECORD = "boot"
SKEW_SECONDS = 2.0  # a wall clock that goes away from the steady one by more was set


class SteadyClock:
    """One per process. `boot`: the start number, larger than any before. `machine_started`: the machine was started
    since the previous process. `skew`: seconds by which the wall clock has been set away from this one, as of the last
    `now`."""

    def __init__(self, clock: Clock, checkpoint: Checkpoint, last: dict[str, Any]) -> None:
        """`last`: the record of the previous process, {} = none."""
        self._clock = clock
        base, machine = last.get("base"), boot_id()
        same = isinstance(base, float) and last.get("machine") == machine
        self.machine_started = bool(last) and not same
        self._base: float = base if same and isinstance(base, float) else clock.wall() - clock.monotonic()
        self._reported = self.skew = clock.wall() - clock.monotonic() - self._base
        count = last.get("count", 0)
        self.boot = count + 1 if isinstance(count, int) else int(clock.wall())
        saved = {"count": self.boot, "base": self._base, "machine": machine}
        if checkpoint.save(RECORD, saved) is not RecordLocation.ON_DISK:
            self.boot = max(self.boot, int(clock.wall()))  # larger than any before though it cannot be written down

    def now(self) -> float:
        """Seconds of this clock. Logs a warning when the wall clock was set."""
        now = self._base + self._clock.monotonic()
        self.skew = self._clock.wall() - now
        if abs(self.skew - self._reported) > SKEW_SECONDS:
            by = self.skew - self._reported
            log.warning("the clock was set by %+.0f s: deadlines and back-offs go on as they were", by)
            self._reported = self.skew
        return now
