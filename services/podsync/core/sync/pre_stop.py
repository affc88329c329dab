"""Decides that a preStop hook runs once for each container instance, whatever interrupts its stop (pods.md 8.2, 8.4).
A stop is decided again after a shorter grace period, a failed call or a restart of podsync. The kubelet then runs the
hook again; here the begin of the hook is saved before the call that runs it. A call that is interrupted before it is
performed leaves the hook to the next one; a SIGKILL between the save and the call skips the hook.
"""

from collections.abc import Callable
from typing import TypeVar

from services.podsync.core.pod.instructions import Call, ContainerStop, KillContainer, KillPod
from services.podsync.core.pod.saved import without
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace

CallOrNone = TypeVar("CallOrNone", Call, Call | None)


def with_begun_hooks(tracked: TrackedPod, call: Call | None, now: float) -> Call | None:
    """Return the call, with the seconds since the begin in each stop whose hook was begun already."""

    def spent(stop: ContainerStop) -> ContainerStop:
        begun = tracked.saved.pre_stops.get(stop.container_id)
        if not stop.pre_stop or begun is None:
            return stop
        return replace(stop, hook_spent=max(0, int(now - begun)))

    return _with_stops(call, spent)


def note_begun_hooks(tracked: TrackedPod, call: Call | None, now: float) -> TrackedPod:
    """Return the pod with the hooks that this call begins, as long as the runtime has their instances."""
    if not isinstance(call, KillContainer | KillPod):
        return tracked
    there = {instance.id for instance in tracked.instances}
    kept = {container_id: at for container_id, at in tracked.saved.pre_stops.items() if container_id in there}
    begun = {stop.container_id: now for stop in _stops(call) if stop.pre_stop}
    return replace(tracked, saved=replace(tracked.saved, pre_stops=begun | kept))


def drop_unbegun_hooks(tracked: TrackedPod, call: Call) -> TrackedPod:
    """Return the pod without the hooks that this call was to begin: it was never performed."""
    unbegun = [stop.container_id for stop in _stops(call) if stop.pre_stop and stop.hook_spent < 0]
    if not unbegun:
        return tracked
    return replace(tracked, saved=replace(tracked.saved, pre_stops=without(tracked.saved.pre_stops, *unbegun)))


def without_begun_hooks(call: Call) -> Call:
    """Return the call without the seconds that `with_begun_hooks` added, so that the same call of another moment is
    equal to it."""
    return _with_stops(call, lambda stop: replace(stop, hook_spent=-1))


def _with_stops(call: CallOrNone, change: Callable[[ContainerStop], ContainerStop]) -> CallOrNone:
    if isinstance(call, KillContainer):
        return replace(call, stop=change(call.stop))
    if isinstance(call, KillPod):
        return replace(call, containers=tuple(map(change, call.containers)))
    return call


def _stops(call: Call) -> tuple[ContainerStop, ...]:
    if isinstance(call, KillContainer):
        return (call.stop,)
    return call.containers if isinstance(call, KillPod) else ()
