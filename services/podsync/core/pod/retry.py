"""Has, in memory only, when a failed call is tried again: a frozen value. A new process tries everything at once.
Moments are steady seconds, 0 = at once. Decides no delay.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from services.podsync.core.pod.instructions import Call
from services.podsync.core.pod.saved import without
from shared.model.frozen_copy import replace


class Retry(Struct, frozen=True, kw_only=True):
    """Has the retries of one pod. A retry of a container's image or creation is in its `Progress`."""

    at: float = 0.0  # before which there is no call of the pod
    starts: Mapping[str, float] = field(default_factory=dict)  # instance -> moment before which it is not started
    removal_at: float = 0.0  # before which no dead container or sandbox is removed; it delays no other call
    removal_error: str = ""  # of the newest removal
    # Removals in a row that the runtime refused because of the state of the container or sandbox, without timeouts.
    refusals: int = 0
    # Ends of tasks below CRI since the newest removal that succeeded, or since the pod is to end.
    endings: int = 0
    resize_at: float = 0.0  # before which the pod's cgroup and running containers are not resized
    # Failures in a row, by type of call and whether the runtime was away, which is no failure of the call itself.
    failures: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    last_done: Call | None = None  # the newest call that succeeded, which is not repeated at once

    def failures_of(self, kind: type[Call], *, away: bool = False) -> int:
        """Return how often calls of this type have failed in a row, with the runtime `away` or not."""
        return self.failures.get((kind.__name__, away), 0)


def after_failure(retry: Retry, call: Call, *, away: bool) -> Retry:
    """Return the value with one more failure of a call of this type."""
    count = retry.failures_of(type(call), away=away) + 1
    return replace(retry, failures={**retry.failures, (type(call).__name__, away): count})


def after_look(retry: Retry, call: Call) -> Retry:
    """Return the value after the success of a call that changes nothing, so that only its own failures are over."""
    kind = type(call).__name__
    return replace(retry, failures=without(retry.failures, (kind, True), (kind, False)))


def start_later(retry: Retry, instance: str, at: float) -> Retry:
    """Return the value with `at`, steady seconds, as the moment before which this instance is not started."""
    return replace(retry, starts={**retry.starts, instance: at})
