"""When what failed is tried again: a frozen value that is not saved, because after a start everything is tried at once.

Moments are steady seconds, 0 = at once. Decides no delay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.podsync.core.pod.instructions import Call
from shared.frozen_copy import replace


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Of one pod. What waits for a container's image or creation is in its `Progress`."""

    at: float = 0.0  # no call of the pod before
    starts: Mapping[str, float] = field(default_factory=dict)  # instance -> no start of it before
    removal_at: float = 0.0  # no removal of dead containers and sandboxes before, which delays nothing else
    removal_error: str = ""  # of the newest such removal
    resize_at: float = 0.0  # no resize of the pod's cgroup and running containers before
    failures: int = 0  # calls failed in a row, without looks at the pod
    last_done: Call | None = None  # the newest call that succeeded: it is not repeated at once


def start_later(retry: Retry, instance: str, at: float) -> Retry:
    """The same; the start of this instance waits until `at`, steady seconds."""
    return replace(retry, starts={**retry.starts, instance: at})
