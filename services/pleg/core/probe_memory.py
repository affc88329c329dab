"""Has what a probe's worker saves for the next process, so that a restart neither loses failures nor adds any.
It changes only with results: a steady probe has the same value after every try.
"""

from math import isfinite
from zlib import crc32

from msgspec import Struct

from services.pleg.core.probe_spec import ProbeSpec
from shared.model.probes import ProbeResult

_RESULTS = frozenset(ProbeResult)


class ProbeMemory(Struct, frozen=True, kw_only=True):
    """Has the counts of one worker for one container instance. `phase`: CLOCK_MONOTONIC seconds modulo the period at
    which it is due; `in_a_row`: how often the result `last` came in a row, up to the threshold."""

    container: str
    kind: str
    container_id: str
    fingerprint: int
    result: str
    last: str
    in_a_row: int
    held: bool
    phase: float

    @property
    def sound(self) -> bool:
        """Whether the values are ones that a worker can have written."""
        return self.result in _RESULTS and self.last in _RESULTS and self.in_a_row >= 0 and isfinite(self.phase)

    def is_of(self, spec: ProbeSpec, container_id: str) -> bool:
        """Return whether these counts belong to this probe."""
        return self.container_id == container_id and self.fingerprint == fingerprint_of(spec) and self.sound

    def next_due(self, period: float, now: float) -> float:
        """Return the first moment after `now` that continues the period of the earlier tries."""
        return now + ((self.phase - now) % period or period)


def fingerprint_of(spec: ProbeSpec) -> int:
    """Return a number that is equal for equal specs: counts of another spec do not count."""
    return crc32(repr(spec).encode("utf-8", "replace"))
