"""The lifecycle of a pod on this node: the legal edges between its states, and the arithmetic of its grace period.

pods.md 4.1, 4.4, 8.2. Knows nothing of containers.
"""

from typing import Any

from bus.messages.podsync import PodState
from services.podsync.core.pod.performed import PodSetup
from services.podsync.core.pod.record import TERMINAL_PHASES, PodRecord
from services.podsync.core.pod.saved import Saved, with_containers
from shared.model.frozen_copy import replace
from shared.time.timestamps import parse_rfc3339, rfc3339

LEGAL_EDGES: frozenset[tuple[PodState, PodState]] = frozenset(
    {
        (PodState.SYNC, PodState.TERMINATING),
        (PodState.SYNC, PodState.FINISHED),  # rejected at admission: nothing was ever made
        (PodState.TERMINATING, PodState.TERMINATED),
        (PodState.TERMINATED, PodState.FINISHED),
        (PodState.FINISHED, PodState.TERMINATING),  # another agent of the node started it again
    }
)

ATTACH_LIMIT = "VolumeAttachmentLimitExceeded"  # the reason of a rejection
MINIMUM_STOP_SECONDS = 2  # a StopContainer timeout is never shorter
MINIMUM_GRACE_SECONDS = 1


class IllegalEdgeError(Exception):
    """A bug: a decision moved a pod between two states that no edge joins."""


def moved(record: PodRecord, to: PodState) -> PodRecord:
    """The record in that state. Raises IllegalEdgeError where no edge leads to it."""
    if (record.saved.state, to) not in LEGAL_EDGES:
        raise IllegalEdgeError(f"{record.description}: {record.saved.state} -> {to}")
    return replace(record, saved=replace(record.saved, state=to))


def has_ended(record: PodRecord) -> bool:
    """The pod has a terminal phase, by its containers or by its status of the API server."""
    return bool(record.saved.outcome) or record.api_status.get("phase") in TERMINAL_PHASES


def effective_grace(record: PodRecord, override: int | None = None) -> int:
    """Grace seconds of a termination: it can only shrink, and is at least one second (pods.md 4.4)."""
    grace, given = record.saved.grace_seconds, False
    metadata: dict[str, Any] = record.saved.pod.get("metadata") or {}
    for candidate in (metadata.get("deletionGracePeriodSeconds"), override):
        if isinstance(candidate, int) and not isinstance(candidate, bool) and (grace == 0 or candidate < grace):
            grace, given = candidate, True
    if grace == 0 and not given:
        grace = (
            int(record.spec.get("terminationGracePeriodSeconds") or 0) if record.saved.pod else MINIMUM_GRACE_SECONDS
        )
    return max(grace, MINIMUM_GRACE_SECONDS)


def with_termination(record: PodRecord, *, reason: str, now: float, override: int | None = None) -> PodRecord:
    """The record of a pod that ends: from here on no container of it is started again, and one that waits for its
    verdict needs none. `override`: grace period in seconds in place of the pod's own."""
    saved = replace(
        record.saved,
        admission_decided=True,
        grace_seconds=effective_grace(record, override),
        terminating_since=now,
        termination_cause=reason,
        restarting_all=False,
    )
    saved = with_containers(saved, lambda container: replace(container, replacing="", held_back=""))
    retry = replace(record.retry, at=0.0, failures={})
    return moved(replace(record, saved=saved, retry=retry), PodState.TERMINATING)


def with_second_termination(record: PodRecord, now: float) -> PodRecord:
    """The record of a finished pod that runs, as another agent of the node started it again, and that is not wanted: it
    ends with its own grace period. Its verdict and its phase stay."""
    record = replace(record, saved=replace(record.saved, grace_seconds=0), setup=PodSetup())
    return with_termination(record, reason="another agent started the pod after it had finished here", now=now)


def deadline(record: PodRecord) -> float | None:
    """When spec.activeDeadlineSeconds is over, counted from status.startTime (pods.md 8.7)."""
    seconds, begun = record.spec.get("activeDeadlineSeconds"), record.saved.active_since
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not begun:
        return None
    return begun + seconds


def with_start(saved: Saved, now: float, skew: float) -> Saved:
    """Return the facts of a pod that is seen for the first time with its status.startTime and the steady moment of it:
    now, unless another agent took the pod first and `start_time` has when. `skew`: seconds by which the wall clock has
    been set away from `now`."""
    begun = parse_rfc3339(saved.start_time)
    if begun is None:
        return replace(saved, start_time=rfc3339(now + skew), active_since=now)
    return replace(saved, active_since=min(begun - skew, now))


def past_deadline(record: PodRecord, now: float) -> PodRecord:
    """The record of a pod that was active for longer than it may: it ends and has failed."""
    text = "Pod was active on the node longer than the specified deadline"
    record = record.with_event("Normal", "DeadlineExceeded", text, "")
    ending = {"reason": "DeadlineExceeded", "message": text, "disruption": ""}
    record = replace(record, saved=replace(record.saved, ending=ending))
    return with_termination(record, reason="activeDeadlineSeconds is over", now=now)


def over_attach_limit(record: PodRecord, message: str, now: float) -> PodRecord:
    """The record of a pod that is rejected, as a volume of it cannot be attached to this node (volumes.md 2.2)."""
    record = record.with_event("Warning", ATTACH_LIMIT, message, "")
    ending = {"reason": ATTACH_LIMIT, "message": f"Pod was rejected: {message}", "disruption": ""}
    record = replace(record, saved=replace(record.saved, ending=ending))
    return with_termination(record, reason="the node takes no further volume", now=now)


def grace_left(record: PodRecord, now: float) -> int:
    """Seconds left of the grace of a pod that ends, counted across restarts of podsync. 0 = the grace is over."""
    spent = max(0.0, now - record.saved.terminating_since) if record.saved.terminating_since else 0.0
    return max(0, record.saved.grace_seconds - int(spent))
