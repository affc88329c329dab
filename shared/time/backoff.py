"""Exponential back-off: how long to wait after a failure, longer after each further one. Pure.

Each user owns its count of failures (or its last delay), its clock and its randomness; the numbers are one `Backoff`.
"""

from math import inf

from msgspec import Struct

_MAX_EXPONENT = 64  # of the power of `factor`, which stays a finite number after any number of failures


class Backoff(Struct, frozen=True):
    """`initial` seconds after the first failure, times `factor` after each further one in a row, at most `cap` seconds.

    After more than `reset_after` seconds without a failure, the next one is a first one again.
    """

    initial: float
    cap: float = inf
    factor: float = 2.0
    reset_after: float = inf

    def delay(self, failures: int, jitter: float = 0.0) -> float:
        """Return seconds to wait after so many failures in a row; 0 after none.

        `jitter` is the share of the delay that is added to it, also beyond `cap`; a negative one shortens it.
        """
        if failures <= 0:
            return 0.0
        return min(self.initial * self.factor ** min(failures - 1, _MAX_EXPONENT), self.cap) * (1 + jitter)

    def next_delay(self, delay: float) -> float:
        """Return the delay after one of `delay` seconds; 0 = there was none before."""
        return min(delay * self.factor if delay else self.initial, self.cap)

    def is_reset(self, since: float, now: float) -> bool:
        """Return whether the last failure, at `since`, no longer counts at `now`; both in seconds of one clock."""
        return now - since > self.reset_after
