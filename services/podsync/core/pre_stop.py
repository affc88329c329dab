"""Runs a preStop hook once for each container instance, whatever interrupts its stop (reference pods.md 8.2, 8.4).

A stop is decided anew after a shorter grace period, a failed call or a restart of podsync. The kubelet then runs the
hook again; here its begin is saved before the call that runs it.
"""

from collections.abc import Callable
from dataclasses import replace

from services.podsync.core.instructions import Call, ContainerStop, KillContainer, KillPod
from services.podsync.core.record import PodRecord


def with_begun_hooks(record: PodRecord, call: Call | None, now: float) -> Call | None:
    """The same call; its stops say which of their hooks were begun already."""

    def spent(stop: ContainerStop) -> ContainerStop:
        begun = record.pre_stops.get(stop.container_id)
        if not stop.pre_stop or begun is None:
            return stop
        return replace(stop, hook_spent=max(0, int(now - begun)))

    return _with_stops(call, spent)


def note_begun_hooks(record: PodRecord, call: Call | None, now: float) -> None:
    """Remember which hooks this call begins, as long as the runtime has their instances."""
    if not isinstance(call, KillContainer | KillPod):
        return
    there = {instance.id for instance in record.instances}
    record.pre_stops = {container_id: at for container_id, at in record.pre_stops.items() if container_id in there}

    def note(stop: ContainerStop) -> ContainerStop:
        if stop.pre_stop:
            record.pre_stops.setdefault(stop.container_id, now)
        return stop

    _with_stops(call, note)


def _with_stops(call: Call | None, change: Callable[[ContainerStop], ContainerStop]) -> Call | None:
    if isinstance(call, KillContainer):
        return replace(call, stop=change(call.stop))
    if isinstance(call, KillPod):
        return replace(call, containers=tuple(map(change, call.containers)))
    return call
