"""Decides of which pods something is left while the machine shuts down (node.md 3 "Kill sequence"): a container, or a
volume that is to be unmounted.
"""

from collections.abc import Iterable

from bus.messages.podsync import PodState, ShutdownGroup
from services.podsync.core.pod.lifecycle import MIN_GRACE_SECONDS, grace_left
from services.podsync.core.pod.published_items import mounted_volumes
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.shutdown.sequence import RunningPod
from shared.model.shutdown_groups import Groups, index_of_group


def remaining_pods(pods: Iterable[TrackedPod], groups: Groups, *, volumes_known: bool, now: float) -> list[RunningPod]:
    """Return the pods of which something is left. `volumes_known`: the list of mounted volumes is complete and fresh;
    without it no pod with volumes has unmounted them; `now`: steady seconds."""
    return [
        RunningPod(
            uid=tracked.uid,
            description=tracked.description,
            priority=_priority(tracked),
            grace_seconds=int(tracked.spec.get("terminationGracePeriodSeconds") or 0),
            stops=_stops(tracked, groups, now),
        )
        for tracked in pods
        if _is_left(tracked, volumes_known=volumes_known)
    ]


def count_by_group(groups: Groups, pods: Iterable[RunningPod]) -> tuple[ShutdownGroup, ...]:
    """Return the groups with the number of these pods in each."""
    counts = [0] * len(groups)
    for pod in pods:
        counts[index_of_group(pod.priority, groups)] += 1
    return tuple(
        ShutdownGroup(priority=group.priority, seconds=group.seconds, pods=count)
        for group, count in zip(groups, counts, strict=True)
    )


def _is_left(tracked: TrackedPod, *, volumes_known: bool) -> bool:
    saved = tracked.saved
    if saved.rejected or saved.state is PodState.FINISHED or not saved.admission_decided:
        return False
    if saved.state is PodState.TERMINATING or (saved.state is PodState.SYNC and not _has_stopped(tracked)):
        return True
    mounted = tracked.volumes.volumes if tracked.volumes is not None else {}
    if not volumes_known and tracked.spec.get("volumes"):
        return True
    return bool(mounted.keys() - set(mounted_volumes(saved)))


def _has_stopped(tracked: TrackedPod) -> bool:
    return tracked.saved.shutdown is not None and tracked.saved.shutdown.stopped


def _stops(tracked: TrackedPod, groups: Groups, now: float) -> bool:
    """Return whether the pod stops for the shutdown, or ends anyway, in no more time from now on than its group has."""
    if tracked.saved.state is PodState.TERMINATING:
        seconds = int(groups[index_of_group(_priority(tracked), groups)].seconds)
        return grace_left(tracked, now) <= max(MIN_GRACE_SECONDS, seconds)
    return tracked.saved.shutdown is not None or tracked.saved.state is not PodState.SYNC


def _priority(tracked: TrackedPod) -> int:
    priority = tracked.spec.get("priority")
    return priority if isinstance(priority, int) else 0
