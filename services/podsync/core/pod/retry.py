"""When what failed is tried again: a frozen value that is not saved, because after a start everything is tried at once.

Moments are steady seconds, 0 = at once. Decides no delay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from services.podsync.core.pod.instructions import Call
from services.podsync.core.pod.saved import without


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Of one pod."""

    at: float = 0.0  # no call of the pod before
    # Container, or `volume_key` -> the same for its image and its creation.
    containers: Mapping[str, float] = field(default_factory=dict)
    starts: Mapping[str, float] = field(default_factory=dict)  # instance -> the same for its start
    removal_at: float = 0.0  # the same for the removal of what is dead, which delays nothing else
    failures: int = 0  # calls failed in a row, without looks at the pod
    last_done: Call | None = None  # the newest call that succeeded: it is not repeated at once


def container_later(retry: Retry, key: str, at: float) -> Retry:
    """The same; the image or the creation of this container waits until `at`."""
    return replace(retry, containers={**retry.containers, key: at})


def start_later(retry: Retry, instance: str, at: float) -> Retry:
    """The same; the start of this instance waits until `at`."""
    return replace(retry, starts={**retry.starts, instance: at})


def container_now(retry: Retry, *keys: str) -> Retry:
    """The same; nothing of these containers waits."""
    return replace(retry, containers=without(retry.containers, *keys))


def volume_key(volume: str) -> str:
    """Where a volume's image stands among those of the containers, whose names have no slash."""
    return f"volume/{volume}"
