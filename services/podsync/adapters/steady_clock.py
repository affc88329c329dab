"""Has the clock that podsync decides by: the wall clock at podsync's first start after a boot, and monotonic from then.
A change of the wall clock, also between two processes, must neither end nor delay back-offs and deadlines. So the base
is on disk, with the start number and the boot that it belongs to.
"""

import logging
from typing import Any

from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.time.clock import Clock

log = logging.getLogger(__name__)

RECORD = "boot"
MAX_SKEW_SECONDS = 2.0  # between wall clock and steady clock; beyond that the wall clock was set


class SteadyClock:
    """Returns steady seconds. `boot`: the start number, larger than any before. `machine_started`: the machine booted
    since the previous process, which ran in the boot `earlier_machine`. `skew`: seconds of the wall clock ahead of this
    clock, at the last `now`."""

    def __init__(self, clock: Clock, checkpoint: Checkpoint, last: dict[str, Any], machine: str) -> None:
        """Continue the clock of the record `last` of the previous process, {} = none. `machine`: identity of the
        present boot."""
        self._clock = clock
        base = last.get("base")
        self.earlier_machine = str(last.get("machine") or "")  # identity, "" = not known
        self.machine_started = bool(last) and not (isinstance(base, float) and last.get("machine") == machine)
        is_same_boot = machine.split()[:1] == self.earlier_machine.split()[:1]  # of which monotonic seconds are
        self._base: float = base if is_same_boot and isinstance(base, float) else clock.wall() - clock.monotonic()
        self._reported = self.skew = clock.wall() - clock.monotonic() - self._base
        count = last.get("count", 0)
        self.boot = count + 1 if isinstance(count, int) else int(clock.wall())
        saved = {"count": self.boot, "base": self._base, "machine": machine}
        if checkpoint.save(RECORD, saved) is not RecordLocation.ON_DISK:
            self.boot = max(self.boot, int(clock.wall()))  # larger than any before although it cannot be saved

    def now(self) -> float:
        """Return the seconds of this clock. Log a warning when the wall clock was set."""
        now = self._base + self._clock.monotonic()
        self.skew = self._clock.wall() - now
        if abs(self.skew - self._reported) > MAX_SKEW_SECONDS:
            by = self.skew - self._reported
            log.warning("the clock was set by %+.0f s: deadlines and back-offs go on as they were", by)
            self._reported = self.skew
        return now
