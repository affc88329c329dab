"""Decides, while containers are stopped, how much of the grace is left, whether a preStop hook runs or the rest of its
sleep is waited for, and whether the sandboxes are stopped, too (pods.md 8.1-8.3). `container_kill` decides which
containers are stopped, and a sidecar after which others.
"""

from collections.abc import Iterable
from enum import StrEnum

from services.podsync.core.pod.instructions import ContainerStop
from services.podsync.core.pod.lifecycle import MIN_STOP_SECONDS
from shared.model.objects import Object


class PreStop(StrEnum):
    """What a stop does of the container's preStop hook."""

    NOTHING = "nothing"
    RUN = "run"
    SLEEP_ON = "sleep on"  # an earlier process began it: a sleep lasts its rest, another hook is not repeated


def pre_stop_of(stop: ContainerStop) -> PreStop:
    """Return what this stop does of the hook: nothing without a hook, or without time for it."""
    if not stop.pre_stop or stop.grace_seconds <= 0:
        return PreStop.NOTHING
    return PreStop.SLEEP_ON if stop.hook_spent >= 0 else PreStop.RUN


def sleep_seconds(container: Object, hook: str) -> int:
    """Return the seconds that this lifecycle hook of the container sleeps; 0 for a hook of another kind."""
    action = ((container.get("lifecycle") or {}).get(hook) or {}).get("sleep")
    return max(0, int(action.get("seconds") or 0)) if isinstance(action, dict) else 0


def sleep_left(container: Object, stop: ContainerStop) -> int:
    """Return the seconds that are left of a preStop hook which an earlier process began; not positive = none."""
    return sleep_seconds(container, "preStop") - stop.hook_spent


def remaining_grace(grace: int, waited: float) -> int:
    """Return the grace after a wait for the hook, or for containers that must end before. Both are seconds; of the wait
    only whole ones count, as in the kubelet."""
    return grace - int(waited)


def stop_timeout(grace: int) -> int:
    """Return the timeout of StopContainer in seconds, from what is left of the grace."""
    return max(grace, MIN_STOP_SECONDS)


def may_stop_sandboxes(stops: Iterable[ContainerStop], *, failed: bool) -> bool:
    """Return whether the sandboxes may be stopped after these stops, of which one may have failed. That kills what is
    left in them, so it waits for containers that have time left."""
    return not failed or all(stop.grace_seconds <= MIN_STOP_SECONDS for stop in stops)
