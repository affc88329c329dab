"""Moves a pod between the states of its lifecycle, and computes its grace period (pods.md 4.1, 4.4, 8.2).
Knows nothing of containers.
"""

from typing import Any

from bus.messages.podsync import PodState
from services.podsync.core.pod.events import PodEvicted, PodStopped
from services.podsync.core.pod.progress import PodSetup
from services.podsync.core.pod.saved import Saved, ShutdownStop, with_container, with_containers
from services.podsync.core.pod.tracked_pod import TERMINAL_PHASES, TrackedPod
from shared.model.frozen_copy import replace
from shared.time.timestamps import parse_rfc3339, rfc3339

LEGAL_EDGES: frozenset[tuple[PodState, PodState]] = frozenset(
    {
        (PodState.SYNC, PodState.TERMINATING),
        (PodState.SYNC, PodState.FINISHED),  # rejected at admission: nothing of it was made
        (PodState.TERMINATING, PodState.TERMINATED),
        (PodState.TERMINATED, PodState.FINISHED),
        (PodState.FINISHED, PodState.TERMINATING),  # another agent of the node started it again
    }
)

PREEMPTING = "Preempting"  # why a pod ends, and the reason of its event
ATTACH_LIMIT = "VolumeAttachmentLimitExceeded"  # the reason of a rejection
MIN_STOP_SECONDS = 2  # of the timeout of StopContainer
MIN_GRACE_SECONDS = 1


class IllegalEdgeError(Exception):
    """A decision moved a pod between two states that no edge joins, which is a bug."""


def moved(tracked: TrackedPod, to: PodState) -> TrackedPod:
    """Return the pod in the state `to`. Raises IllegalEdgeError where no edge leads to it."""
    if (tracked.saved.state, to) not in LEGAL_EDGES:
        raise IllegalEdgeError(f"{tracked.description}: {tracked.saved.state} -> {to}")
    return replace(tracked, saved=replace(tracked.saved, state=to))


def has_ended(tracked: TrackedPod) -> bool:
    """Return whether the pod has a terminal phase, by its containers or by its status in the API server."""
    return bool(tracked.saved.outcome) or tracked.api_status.get("phase") in TERMINAL_PHASES


def effective_grace(tracked: TrackedPod, override: int | None = None) -> int:
    """Return the grace seconds of a termination: they can only shrink, and are at least one (pods.md 4.4)."""
    grace, is_set = tracked.saved.grace_seconds, False
    metadata: dict[str, Any] = tracked.saved.pod.get("metadata") or {}
    for candidate in (metadata.get("deletionGracePeriodSeconds"), override):
        if isinstance(candidate, int) and not isinstance(candidate, bool) and (grace == 0 or candidate < grace):
            grace, is_set = candidate, True
    if grace == 0 and not is_set:
        grace = int(tracked.spec.get("terminationGracePeriodSeconds") or 0)
    return max(grace, MIN_GRACE_SECONDS)


def with_termination(tracked: TrackedPod, *, reason: str, now: float, override: int | None = None) -> TrackedPod:
    """Return the pod marked to end: no container of it is started any more, and it needs no admission. `override`:
    grace period in seconds in place of the pod's own."""
    saved = replace(
        tracked.saved,
        admission_decided=True,
        grace_seconds=effective_grace(tracked, override),
        terminating_since=now,
        termination_cause=reason,
        restarting_all=False,
        shutdown=None,
    )
    saved = with_containers(saved, lambda container: replace(container, replacing="", held_back=""))
    retry = replace(tracked.retry, at=0.0, removal_at=0.0, refusals=0, endings=0, failures={})
    return moved(replace(tracked, saved=saved, retry=retry), PodState.TERMINATING)


def with_preemption(tracked: TrackedPod, critical: str, lacking: str, now: float) -> TrackedPod:
    """Return the pod, which is to end to make room for a critical pod with that description. `lacking`: the resource
    of which the critical pod needs more."""
    text = "Preempted in order to admit critical pod"
    victim = tracked.with_event("Warning", PREEMPTING, text, "")
    disruption = "Pod was preempted by Kubelet to accommodate a critical pod."
    ending = {"reason": PREEMPTING, "message": text, "disruption": disruption, "signal": lacking}
    victim = replace(victim, saved=replace(victim.saved, ending=ending))
    if victim.saved.state is not PodState.SYNC:
        return victim
    return with_termination(victim, reason=f"preempted for {critical}", now=now)


def with_eviction(tracked: TrackedPod, event: PodEvicted, now: float) -> TrackedPod:
    """Return the pod, which is to end because the node lacks a resource."""
    ending = {"reason": "Evicted", "message": event.message, "disruption": event.disruption}
    tracked = replace(tracked, saved=replace(tracked.saved, ending=ending))
    return with_termination(tracked, reason=event.cause, now=now, override=event.grace_seconds)


def with_shutdown(tracked: TrackedPod, event: PodStopped, boot: str, now: float) -> TrackedPod:
    """Return the pod, which is to stop because the machine shuts down. A pod that ends already gets no more time from
    now on than the event gives."""
    saved = tracked.saved
    if saved.state is PodState.TERMINATING:
        grace = effective_grace(tracked, _spent_seconds(tracked, now) + event.grace_seconds)
        return replace(tracked, saved=replace(saved, grace_seconds=grace))
    if saved.state is not PodState.SYNC or saved.rejected or not saved.admission_decided or saved.shutdown is not None:
        return tracked
    grace = max(min(event.grace_seconds, effective_grace(tracked)), MIN_GRACE_SECONDS)
    stop = ShutdownStop(boot=boot, since=now, grace_seconds=grace)
    retry = replace(tracked.retry, at=0.0, failures={})
    return replace(tracked, saved=replace(saved, shutdown=stop), retry=retry)


def cut_off(tracked: TrackedPod) -> TrackedPod:
    """Return a pod after a boot, whose turn had not come when the machine went off in a shutdown: the containers that
    ran, by its status, start again, as those of the pods that were stopped do."""
    saved = tracked.saved
    if saved.state is not PodState.SYNC or not saved.admission_decided or saved.shutdown or has_ended(tracked):
        return tracked
    names = {str(spec["name"]) for spec in (*tracked.init_containers, *tracked.containers)}
    for shown in (
        *(tracked.status.get("initContainerStatuses") or ()),
        *(tracked.status.get("containerStatuses") or ()),
    ):
        name, instance = str(shown.get("name")), str(shown.get("containerID") or "").rpartition("://")[2]
        if name in names and instance and "running" in (shown.get("state") or {}):
            container = replace(saved.container(name), hook_owed="", hook_failed="", device_failed="")
            saved = with_container(saved, name, replace(container, replacing=instance, held_back=""))
    return tracked if saved is tracked.saved else replace(tracked, saved=saved)


def late_in_shutdown(tracked: TrackedPod) -> TrackedPod:
    """Return the pod, which has not stopped in the time of its group, with the event that says so."""
    text = "Container runtime did not kill the pod within specified grace period."
    return tracked.with_event("Warning", "ExceededGracePeriod", text, "")


def without_shutdown(tracked: TrackedPod) -> TrackedPod:
    """Return a pod that was stopped for a shutdown, which starts again now."""
    retry = replace(tracked.retry, at=0.0, failures={})
    return replace(tracked, saved=replace(tracked.saved, shutdown=None), setup=PodSetup(), retry=retry)


def with_second_termination(tracked: TrackedPod, now: float) -> TrackedPod:
    """Return a finished pod that another agent of the node started again and that no source lists: it
    ends with its own grace period. Its verdict and its phase stay."""
    tracked = replace(tracked, saved=replace(tracked.saved, grace_seconds=0), setup=PodSetup())
    return with_termination(tracked, reason="another agent started the pod after it had finished here", now=now)


def deadline(tracked: TrackedPod) -> float | None:
    """Return the steady seconds at which spec.activeDeadlineSeconds is over, counted from status.startTime (pods.md
    8.7); None = no deadline."""
    seconds, begun = tracked.spec.get("activeDeadlineSeconds"), tracked.saved.active_since
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not begun:
        return None
    return begun + seconds


def active_until(tracked: TrackedPod) -> float | None:
    """Return the deadline of a pod that was neither rejected nor is ending, in seconds of `now`; None = it has none."""
    is_active = tracked.saved.state is PodState.SYNC and not tracked.saved.rejected
    return deadline(tracked) if is_active else None


def with_start(saved: Saved, now: float, skew: float) -> Saved:
    """Return the facts of a new pod with its status.startTime and the steady moment of it: now, unless another agent
    started the pod at `start_time`. `skew`: seconds of the wall clock ahead of `now`."""
    begun = parse_rfc3339(saved.start_time)
    if begun is None:
        return replace(saved, start_time=rfc3339(now + skew), active_since=now)
    return replace(saved, active_since=min(begun - skew, now))


def past_deadline(tracked: TrackedPod, now: float) -> TrackedPod:
    """Return the record of a pod that was active for longer than its deadline, now ending as failed."""
    text = "Pod was active on the node longer than the specified deadline"
    tracked = tracked.with_event("Normal", "DeadlineExceeded", text, "")
    ending = {"reason": "DeadlineExceeded", "message": text, "disruption": ""}
    tracked = replace(tracked, saved=replace(tracked.saved, ending=ending))
    return with_termination(tracked, reason="activeDeadlineSeconds is over", now=now)


def over_attach_limit(tracked: TrackedPod, message: str, now: float) -> TrackedPod:
    """Return a pod that is rejected because a volume of it cannot be attached to this node (volumes.md
    2.2)."""
    tracked = tracked.with_event("Warning", ATTACH_LIMIT, message, "")
    ending = {"reason": ATTACH_LIMIT, "message": f"Pod was rejected: {message}", "disruption": ""}
    tracked = replace(tracked, saved=replace(tracked.saved, ending=ending))
    return with_termination(tracked, reason="the node takes no further volume", now=now)


def grace_left(tracked: TrackedPod, now: float) -> int:
    """Return the seconds left of the grace of a pod that ends, counted across restarts of podsync; 0 = the grace is
    over."""
    return max(0, tracked.saved.grace_seconds - _spent_seconds(tracked, now))


def _spent_seconds(tracked: TrackedPod, now: float) -> int:
    """Return for how many whole seconds the pod has been ending."""
    since = tracked.saved.terminating_since
    return int(max(0.0, now - since)) if since else 0


def shutdown_grace_left(stop: ShutdownStop, now: float) -> int:
    """Return the seconds left of the grace of a pod that stops for a shutdown, counted across restarts of podsync."""
    return max(0, stop.grace_seconds - int(max(0.0, now - stop.since)))


def holds_name(other: TrackedPod, tracked: TrackedPod) -> bool:
    """Return whether `tracked` has to wait for `other`, a pod of the same full name that was started, or is ending
    (pods.md 4.5)."""
    if other.saved.state in (PodState.TERMINATING, PodState.TERMINATED):
        return True
    if other.may_run_after_end:
        return not tracked.alive
    if other.saved.state is not PodState.SYNC or tracked.instances:
        return False
    return bool(other.instances) or not other.observed.is_current or other.uid < tracked.uid
