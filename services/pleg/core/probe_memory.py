"""What a probe's worker hands over to the next process, so that a restart neither forgets a failure nor invents one.

It changes only with results: what a steady probe would save is the same after every try.
"""

from dataclasses import dataclass
from math import isfinite
from zlib import crc32

from services.pleg.core.probe_spec import ProbeSpec
from shared.model.probes import ProbeResult

_RESULTS = frozenset(ProbeResult)


@dataclass(frozen=True, kw_only=True)
class ProbeMemory:
    """Of one worker about one container instance. `phase`: CLOCK_MONOTONIC seconds modulo the period at which it is
    due; `in_a_row`: how often `last` came, up to the threshold that counts."""

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
        """It can have been written by a worker."""
        return self.result in _RESULTS and self.last in _RESULTS and self.in_a_row >= 0 and isfinite(self.phase)

    def is_of(self, spec: ProbeSpec, container_id: str) -> bool:
        """Whether these counts belong to this probe."""
        return self.container_id == container_id and self.fingerprint == fingerprint_of(spec) and self.sound

    def next_due(self, period: float, now: float) -> float:
        """The first moment after `now` that is in step with the tries before."""
        return now + ((self.phase - now) % period or period)


def fingerprint_of(spec: ProbeSpec) -> int:
    """Equal for probes that ask the same; what another spec counted is of no use."""
    return crc32(repr(spec).encode("utf-8", "replace"))
