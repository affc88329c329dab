"""Decides which pods stop now while the machine shuts down, and when it may go on (node.md 3 "Kill sequence"). Pure.

One group stops after the other. A group is over when its pods have stopped and their volumes are unmounted, or when its
time is over; a group without such pods takes no time. Moments are steady seconds.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from shared.model.frozen_copy import replace
from shared.model.shutdown_groups import Groups, index_of_group

MAX_NAMED_PODS = 500  # of those that were not finished in time


class Shutdown(Struct, frozen=True, kw_only=True):
    """Has how far the shutdown of the machine is. All of it is on disk before anything follows from it."""

    boot: str  # identity of the machine's boot that it ends, or of the start of its programs
    signal: str  # what began it
    began: float  # wall seconds
    group: int = -1  # index of the group that stops now, or stopped last; -1 = none yet
    group_began: float = 0.0  # steady seconds
    ended: float = 0.0  # wall seconds since when the machine may go on; 0 = it is to wait
    unfinished: tuple[str, ...] = ()  # descriptions of the pods that had not stopped when the time of their group ended

    @property
    def is_over(self) -> bool:
        """Whether the machine may go on."""
        return self.ended > 0


class RunningPod(Struct, frozen=True, kw_only=True):
    """Has what the sequence depends on of a pod that something is left of."""

    uid: str
    description: str
    priority: int
    grace_seconds: int  # that the pod asks for
    stops: bool  # whether it was told to stop for this shutdown


class PodStop(Struct, frozen=True, kw_only=True):
    """Has a pod that is to stop now."""

    uid: str
    grace_seconds: int


class Progress(Struct, frozen=True, kw_only=True):
    """Has the next state of the shutdown, the pods that stop now, those that are late, and when to decide again if no
    pod changes before."""

    shutdown: Shutdown
    stops: tuple[PodStop, ...] = ()
    late: tuple[str, ...] = ()  # UIDs of the pods whose group's time is over, and of which something is left
    wake_at: float = 0.0  # steady seconds, 0 = only a pod changes it


def advance(shutdown: Shutdown, groups: Groups, pods: Iterable[RunningPod], *, now: float, wall: float) -> Progress:
    """Return what follows now. `pods`: all of which something is left, a container or a mounted volume. Once the
    shutdown is over, nothing waits for a pod that still runs, but it stops as well."""
    left = sorted(pods, key=lambda pod: (pod.priority, pod.uid))
    group_of = {pod.uid: index_of_group(pod.priority, groups) for pod in left}
    if shutdown.group >= len(groups):  # the configuration has fewer groups since the last step
        shutdown = replace(shutdown, group=len(groups) - 1)
    if shutdown.is_over:
        untold = (_stop(pod, groups[group_of[pod.uid]].seconds) for pod in left if not pod.stops)
        return Progress(shutdown=shutdown, stops=tuple(untold))
    stops: dict[str, PodStop] = {}
    late: list[str] = []
    while True:
        due = [pod for pod in left if group_of[pod.uid] <= shutdown.group and not pod.stops]
        stops |= {pod.uid: _stop(pod, groups[group_of[pod.uid]].seconds) for pod in due}
        here = [pod for pod in left if group_of[pod.uid] == shutdown.group]
        ends_at = _end_of_group(shutdown, groups)
        if here and now < ends_at:
            return Progress(shutdown=shutdown, stops=tuple(stops.values()), late=tuple(late), wake_at=ends_at)
        shutdown = _with_unfinished(shutdown, here)
        late += [pod.uid for pod in here]
        following = [index for index in group_of.values() if index > shutdown.group]
        if not following:
            ended = replace(shutdown, ended=wall)
            return Progress(shutdown=ended, stops=tuple(stops.values()), late=tuple(late))
        shutdown = replace(shutdown, group=min(following), group_began=now)


def _end_of_group(shutdown: Shutdown, groups: Groups) -> float:
    """Return when the time of the present group is over."""
    if not 0 <= shutdown.group < len(groups):
        return float("-inf")
    return shutdown.group_began + groups[shutdown.group].seconds


def _stop(pod: RunningPod, seconds: float) -> PodStop:
    return PodStop(uid=pod.uid, grace_seconds=max(0, min(int(seconds), pod.grace_seconds)))


def _with_unfinished(shutdown: Shutdown, here: Sequence[RunningPod]) -> Shutdown:
    """Return the shutdown with the names of the pods that did not stop in the time of their group."""
    names = dict.fromkeys((*shutdown.unfinished, *(pod.description for pod in here)))
    return replace(shutdown, unfinished=tuple(names)[:MAX_NAMED_PODS]) if here else shutdown
