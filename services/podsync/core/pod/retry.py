"""When what failed is tried again: a frozen value that is not saved, because after a start everything is tried at once.

Moments are steady seconds, 0 = at once. Decides no delay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.podsync.core.pod.instructions import Call
from services.podsync.core.pod.saved import without
from shared.model.frozen_copy import replace


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Of one pod. What waits for a container's image or creation is in its `Progress`."""

    at: float = 0.0  # no call of the pod before
    starts: Mapping[str, float] = field(default_factory=dict)  # instance -> no start of it before
    removal_at: float = 0.0  # no removal of dead containers and sandboxes before, which delays nothing else
    removal_error: str = ""  # of the newest such removal
    # Such removals in a row that the runtime refused because of the state of what it has. No answer does not count.
    refusals: int = 0
    endings: int = 0  # of tasks below CRI since the newest removal that succeeded
    resize_at: float = 0.0  # no resize of the pod's cgroup and running containers before
    # Failures in a row, by type of call, and whether the runtime was away: that shows nothing of the call itself.
    failures: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    last_done: Call | None = None  # the newest call that succeeded: it is not repeated at once

    def failures_of(self, kind: type[Call], *, away: bool = False) -> int:
        """How often calls of this type have failed in a row, with the runtime `away` or not."""
        return self.failures.get((kind.__name__, away), 0)


def after_failure(retry: Retry, call: Call, *, away: bool) -> Retry:
    """The same with one more failure of a call of this type."""
    count = retry.failures_of(type(call), away=away) + 1
    return replace(retry, failures={**retry.failures, (type(call).__name__, away): count})


def after_look(retry: Retry, call: Call) -> Retry:
    """The same after a success of a call that changes nothing: what failed before may fail again."""
    kind = type(call).__name__
    return replace(retry, failures=without(retry.failures, (kind, True), (kind, False)))


def start_later(retry: Retry, instance: str, at: float) -> Retry:
    """The same; the start of this instance waits until `at`, steady seconds."""
    return replace(retry, starts={**retry.starts, instance: at})
