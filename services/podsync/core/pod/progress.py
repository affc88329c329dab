"""Holds in memory what this process has done for a pod: what it has made, saved and published, and what it has done
towards the starts of containers. The next process begins again. Moments are steady seconds, 0 = at once.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from bus.messages.pleg import ProbeResults
from services.podsync.core.pod.published_items import Published
from services.podsync.core.pod.saved import Attempts, Saved
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace

# The kubelet records the events of a wait at each sync of the pod, so that they outlive an hour in the API server. Once
# a minute suffices, because similar events of a pod are filtered.
REPEAT_EVENTS_SECONDS = 60.0


class PodSetup(Struct, frozen=True, kw_only=True):
    """Has what was made and removed for the pod outside the runtime."""

    prepared: bool = False  # whether directories and cgroup were made
    cgroup_missing: bool = False  # whether containers run without it: they are stopped before it is made
    resources: Mapping[str, Any] | None = None  # as the pod's cgroup has them; None = not read by this process
    released: bool = False  # whether the cgroup was destroyed
    logs_removed: bool = False
    stopped_sandboxes: frozenset[str] = frozenset()  # ids of those for which StopPodSandbox succeeded


class LastWritten(Struct, frozen=True, kw_only=True):
    """Has what was saved and published last: only a change is saved and published again."""

    saved: tuple[Saved, Attempts] | None = None  # of the newest SavePod
    version: int = 0  # number of the newest status within this boot
    status: dict[str, Any] = field(default_factory=dict)
    container_ids: tuple[str, ...] = ()  # of the running instances, published with the status
    waits_for: str = ""  # its turn to start, published with the status
    published: Published | None = None
    published_from: Saved | None = None  # the value that `published` was compared with last


class Progress(Struct, frozen=True, kw_only=True):
    """Has the progress towards the next start of one container, or the image of one volume."""

    reason: tuple[str, str] | None = None  # waiting reason and message
    events_at: float = 0.0  # when the events of `reason` were recorded last
    image: ImageStatus | None = None  # present, for the next start
    must_pull: bool = False  # whether an inspection showed that a pull is needed
    retry_at: float = 0.0  # before which there is no image call and no creation

    def records_events(self, reason: tuple[str, str], now: float) -> bool:
        """Return whether the events of a wait for this reason are to be recorded (again)."""
        return self.reason != reason or now >= self.events_at + REPEAT_EVENTS_SECONDS


class InstanceFacts(Struct, frozen=True, kw_only=True):
    """Has facts of one instance of a container."""

    probes: ProbeResults | None = None
    ended: float | None = None  # when it ended, in steady seconds; None = not computed yet
    cpus: str = ""  # that this process gave it last, such as 0-3,8; "" = not known
    cpus_requested: str = ""  # that the call under way gives it; "" = there is none
    cpus_retry_at: float = 0.0  # before which a call that failed is not repeated; 0 = the newest one did not fail


def without_retry_delay(progress: Mapping[str, Progress]) -> Mapping[str, Progress]:
    """Return the progress by the same keys, where nothing waits for a retry."""
    return {key: replace(value, retry_at=0.0) if value.retry_at else value for key, value in progress.items()}
