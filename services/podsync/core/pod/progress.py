"""Has the progress of this process towards the starts of a pod's containers: frozen values that are not saved.
Moments are steady seconds, 0 = at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bus.messages.pleg import ProbeResults
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace

# The kubelet records the events of a wait at each sync of the pod, so that they outlive an hour in the API server. Once
# a
# minute suffices, because similar events of a pod are filtered.
REPEAT_EVENTS_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Has the progress towards the next start of one container, or the image of one volume."""

    reason: tuple[str, str] | None = None  # waiting reason and message
    events_at: float = 0.0  # when the events of `reason` were recorded last
    image: ImageStatus | None = None  # present, for the next start
    must_pull: bool = False  # whether an inspection showed that a pull is needed
    retry_at: float = 0.0  # before which there is no image call and no creation

    def records_events(self, reason: tuple[str, str], now: float) -> bool:
        """Return whether the events of a wait for this reason are to be recorded (again)."""
        return self.reason != reason or now >= self.events_at + REPEAT_EVENTS_SECONDS


@dataclass(frozen=True, kw_only=True)
class InstanceFacts:
    """Has facts of one instance of a container."""

    probes: ProbeResults | None = None
    ended: float | None = None  # when it ended, in steady seconds; None = not computed yet


def without_retry_delay(progress: Mapping[str, Progress]) -> Mapping[str, Progress]:
    """Return the progress by the same keys, where nothing waits for a retry."""
    return {key: replace(value, retry_at=0.0) if value.retry_at else value for key, value in progress.items()}
