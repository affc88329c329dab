"""Decides the crash-loop back-off: how long a container that has ended waits for its next start (pods.md 7.2, A.11).
A wait begins at the end of an instance. The kubelet starts a container that it killed itself in the same sync, and that
sync still sees the state from before the kill. So the back-off counts from the end of the instance before the killed
one. Only if that back-off delays the start, it counts from the end of the killed instance, as after any other end.
Moments are seconds of the steady clock. The runtime's exit times are of the wall clock, which is `skew` seconds ahead.
"""

from typing import Any

from services.podsync.core.pod.progress import InstanceFacts
from services.podsync.core.pod.saved import CrashBackoff, with_container
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState
from shared.podspec.hashing import backoff_key
from shared.time.backoff import Backoff

# The configuration has the cap. The reset counts from the newest start that was counted, whether the container ran or
# waited since.
RESTARTS = Backoff(initial=10.0, reset_after=600.0)
NANOSECONDS = 1e9


def backoff_until(
    tracked: TrackedPod, spec: dict[str, Any], instances: list[Container], *, now: float, skew: float
) -> tuple[TrackedPod, float]:
    """Return the pod and the moment until which the container waits, 0 = it may start now; `instances` are its own,
    newest first. Where we killed the newest one to restart it, the pod records whether that restart was delayed: the
    kubelet decides this in the sync of the kill."""
    exited = newest_exited(instances)
    entry = _entry(tracked, spec, now)
    if exited is None or entry is None or entry.instance == exited.id:
        return tracked, 0.0  # nothing has ended, or the start after this exit was counted already
    if _starts_with_its_kill(tracked, exited):
        before = _before(exited, instances)
        if before is None:
            return tracked, 0.0
        tracked = _with_end(tracked, before, now, skew)
        if _ends_at(tracked, entry, before) <= now:
            return tracked, 0.0
        container = replace(tracked.saved.container(exited.name), held_back=exited.id)
        tracked = replace(tracked, saved=with_container(tracked.saved, exited.name, container))
    tracked = _with_end(tracked, exited, now, skew)
    return tracked, _ends_at(tracked, entry, exited)


def count_start(
    tracked: TrackedPod, spec: dict[str, Any], instances: list[Container], *, now: float, maximum: float
) -> TrackedPod:
    """Return the pod with the start of another attempt after these: the next one waits twice as long, up to
    `maximum` seconds. The first kill of a container is not counted: nothing had ended before the start that follows
    it."""
    exited = newest_exited(instances)
    if exited is None or (_starts_with_its_kill(tracked, exited) and _before(exited, instances) is None):
        return tracked
    container, key = tracked.saved.container(spec["name"]), backoff_key(tracked.saved.pod, spec)
    known = container.crash_backoff
    if known is not None and known.key == key and known.instance == exited.id:
        return tracked
    entry = _entry(tracked, spec, now)
    seconds = replace(RESTARTS, cap=maximum).next_delay(entry.seconds if entry is not None else 0.0)
    counted = CrashBackoff(key=key, seconds=seconds, updated=now, instance=exited.id)
    container = replace(container, crash_backoff=counted)
    return replace(tracked, saved=with_container(tracked.saved, spec["name"], container))


def newest_exited(instances: list[Container]) -> Container | None:
    """Return the newest instance that has exited; None = there is none."""
    return next((c for c in instances if c.state is ContainerState.EXITED), None)


def _entry(tracked: TrackedPod, spec: dict[str, Any], now: float) -> CrashBackoff | None:
    """Return the back-off of this container with its present spec; None = nothing was counted, or it is reset."""
    entry = tracked.saved.container(spec["name"]).crash_backoff
    if entry is None or entry.key != backoff_key(tracked.saved.pod, spec) or _reset_at(entry) <= now:
        return None
    return entry


def _reset_at(entry: CrashBackoff) -> float:
    return entry.updated + RESTARTS.reset_after


def _starts_with_its_kill(tracked: TrackedPod, exited: Container) -> bool:
    """Return whether we killed the instance so that another one starts, whose start was not delayed since."""
    container = tracked.saved.container(exited.name)
    return container.replacing == exited.id and container.held_back != exited.id


def _before(exited: Container, instances: list[Container]) -> Container | None:
    return newest_exited([c for c in instances if c.id != exited.id])


def _ends_at(tracked: TrackedPod, entry: CrashBackoff, exited: Container) -> float:
    """Return when the back-off after this end is over, at the latest when the entry is reset."""
    finished = tracked.instance_facts[exited.id].ended or 0.0
    return min(finished + entry.seconds, _reset_at(entry))


def _with_end(tracked: TrackedPod, exited: Container, now: float, skew: float) -> TrackedPod:
    """Return the pod with the moment when the instance ended, which is never in the future, even where the clock was
    set back after the exit. It is computed once: a clock that is set afterwards does not change it."""
    facts = tracked.instance_facts.get(exited.id, InstanceFacts())
    if facts.ended is not None:
        return tracked
    there = {c.id for c in tracked.instances}
    kept = {instance: other for instance, other in tracked.instance_facts.items() if other.probes or instance in there}
    facts = replace(facts, ended=min(exited.finished_at / NANOSECONDS - skew, now))
    return replace(tracked, instance_facts={**kept, exited.id: facts})
