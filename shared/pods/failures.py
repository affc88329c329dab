"""Pods whose handling failed by a programming error: when each is tried again, what is logged, what the beat reports.

Pure. An error costs its pod a wait that doubles, and no other pod anything. Times are seconds of one monotonic clock.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from shared.time.backoff import Backoff

RETRIES = Backoff(initial=1.0, cap=122.0)
LOG_AGAIN_SECONDS = 600.0  # until the traceback of the same error is logged again
_MAX_SHOWN_PODS = 5  # that the one line names


@dataclass
class _Failure:
    error: str
    count: int
    not_before: float
    logged_at: float


@dataclass
class PodFailures:
    """By pod UID and what was being done."""

    _failures: dict[tuple[str, str], _Failure] = field(default_factory=dict)

    def failed(self, uid: str, what: str, error: BaseException, now: float) -> bool:
        """It raised this. Whether its traceback is to be logged: once for each kind of error, and again after ten
        minutes."""
        kind, before = type(error).__name__, self._failures.get((uid, what))
        same = before is not None and before.error == kind
        count = before.count + 1 if before is not None else 1
        log = before is None or not same or now - before.logged_at >= LOG_AGAIN_SECONDS
        wait = RETRIES.delay(count)
        logged_at = now if log or before is None else before.logged_at
        self._failures[uid, what] = _Failure(kind, count, now + wait, logged_at)
        return log

    def ended(self, uid: str, what: str) -> bool:
        """It went well. Whether it had failed before."""
        return self._failures.pop((uid, what), None) is not None

    def forget(self, uid: str) -> None:
        """Forget the pod, of which nothing is left."""
        self.keep({key for key, _ in self._failures} - {uid})

    def keep(self, uids: Container[str]) -> None:
        """Forget all pods but these."""
        self._failures = {key: failure for key, failure in self._failures.items() if key[0] in uids}

    def may_try(self, uid: str, what: str, now: float) -> bool:
        """Return whether the wait after the last failure is over."""
        failure = self._failures.get((uid, what))
        return failure is None or failure.not_before <= now

    def next_attempt(self, now: float) -> float | None:
        """Return when the next wait ends; None when nothing waits."""
        return min((f.not_before for f in self._failures.values() if f.not_before > now), default=None)

    @property
    def line(self) -> str | None:
        """One line for the beat; None while nothing fails."""
        shown = [f"{what} of pod {uid} failed: {f.error}" for (uid, what), f in sorted(self._failures.items())]
        more = [f"{len(shown) - _MAX_SHOWN_PODS} more"] if len(shown) > _MAX_SHOWN_PODS else []
        return "; ".join([*shown[:_MAX_SHOWN_PODS], *more, "it is tried again, the log has more"]) if shown else None
