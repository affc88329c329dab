"""What this process found out for the starts of a pod's containers: frozen values that are not saved.

Moments are steady seconds, 0 = at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bus.messages.pleg import ProbeResults
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace

# The kubelet records the events of a wait at each sync of the pod, so that they outlive an hour at the API server; more
# often than this is of no use, as similar events of a pod are filtered.
REPEAT_EVENTS_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """On the way to the next start of one container, or to the image of one volume."""

    reason: tuple[str, str] | None = None  # waiting reason and message
    events_at: float = 0.0  # when the events of `reason` were recorded last
    image: ImageStatus | None = None  # found for the next start
    must_pull: bool = False  # the image was found absent and is to be pulled
    retry_at: float = 0.0  # no image call and no creation before

    def records_events(self, reason: tuple[str, str], now: float) -> bool:
        """Whether the events of a wait for this reason are to be recorded (again)."""
        return self.reason != reason or now >= self.events_at + REPEAT_EVENTS_SECONDS


@dataclass(frozen=True, kw_only=True)
class InstanceFacts:
    """Of one instance of a container."""

    probes: ProbeResults | None = None
    ended: float | None = None  # when it ended, in steady seconds; None = not computed yet


def without_retry_delay(progress: Mapping[str, Progress]) -> Mapping[str, Progress]:
    """The same, by the same keys; nothing waits for a retry."""
    return {key: replace(one, retry_at=0.0) if one.retry_at else one for key, one in progress.items()}
