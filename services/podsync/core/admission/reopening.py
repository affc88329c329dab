"""Decides which rejected pods are admitted or rejected once more: static ones only, for the verdict on a pod of the API
server is final, as its status there is. Pure.
"""

from services.podsync.core.admission.verdict import NODE_SHUTDOWN
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.listed_by_source import from_desired
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace


def is_undecided_by(tracked: TrackedPod, agent_start: str) -> bool:
    """Return whether another start of the agent than this one has rejected the pod."""
    return _can_be_reopened(tracked) and tracked.saved.decided_by != agent_start


def is_undecided_after_shutdown(tracked: TrackedPod) -> bool:
    """Return whether the pod was rejected because the machine shut down."""
    return _can_be_reopened(tracked) and tracked.saved.rejected == NODE_SHUTDOWN


def reopened(tracked: TrackedPod, now: float, skew: float) -> TrackedPod:
    """Return the pod as a new one without a verdict. `now`: steady seconds; `skew`: seconds of the wall clock ahead of
    them."""
    again = from_desired(tracked.uid, tracked.saved.source, tracked.saved.pod)
    saved = replace(lifecycle.with_start(again.saved, now, skew), admission_decided=False)
    return replace(again, saved=saved, observed=tracked.observed, last_written=tracked.last_written)


def _can_be_reopened(tracked: TrackedPod) -> bool:
    return bool(tracked.saved.rejected) and tracked.is_static and not tracked.saved.deleted
