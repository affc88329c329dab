"""Decides whether a pull may begin now: a token bucket of registryPullQPS and registryBurst (pods.md 7.3)."""

from msgspec import Struct

from shared.model.frozen_copy import replace


class PullRate(Struct, frozen=True, kw_only=True):
    """Has the tokens of pulls. `qps`: tokens that are added each second, 0 = pulls are not limited; `burst`: how many
    there are at most."""

    qps: float
    burst: int
    tokens: float
    filled_at: float  # CLOCK_MONOTONIC seconds at which there were `tokens`

    def take(self, now: float) -> "PullRate | None":
        """Return the rate with one token less; None where no pull may begin now."""
        if self.qps <= 0:
            return self
        tokens = min(self.burst, self.tokens + (now - self.filled_at) * self.qps)
        return replace(self, tokens=tokens - 1, filled_at=now) if tokens >= 1 else None


def full_rate(qps: float, burst: int, now: float) -> PullRate:
    """Return the rate of a node that has pulled nothing yet; at least one pull may begin at once."""
    return PullRate(qps=qps, burst=max(burst, 1), tokens=max(burst, 1), filled_at=now)
