"""The rate limit of one client: a token bucket. Pure: the caller gives the time."""

_ROUNDING = 1e-9  # tokens: a sum of fractions is not quite what it should be


class TokenBucket:
    """`qps` tokens a second up to `burst` in store (config.md 6.1); a negative `qps` is no limit.

    Has no queue. A caller that keeps one calls `take` when `ready_in` is 0; `take` before that borrows the token and
    returns the seconds until it is there, which each further call prolongs.
    """

    def __init__(self, qps: float, burst: int, now: float) -> None:
        self._qps, self._burst = (qps or 5.0), max(burst or 10, 1)  # 0 = the client library's own 5 and 10
        self._tokens, self._at = float(self._burst), now

    def take(self, now: float) -> float:
        """Take one token; return the seconds to wait before using it (0 = none). `now`: monotonic seconds."""
        if self._qps < 0:
            return 0.0
        self._tokens = min(float(self._burst), self._tokens + max(0.0, now - self._at) * self._qps)
        self._at = max(self._at, now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)

    def ready_in(self, now: float) -> float:
        """Return the seconds until a token is available; 0 = now."""
        if self._qps < 0:
            return 0.0
        tokens = self._tokens + max(0.0, now - self._at) * self._qps
        return max(0.0, (1.0 - tokens) / self._qps) if tokens < 1.0 - _ROUNDING else 0.0

    def give_back(self) -> None:
        """Return a token that was taken and not used: its caller was cancelled before it sent the request."""
        self._tokens = min(float(self._burst), self._tokens + 1.0)
