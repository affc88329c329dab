"""Crash-loop back-off: how long a container that has ended waits for its next start (pods.md 7.2, A.11).

A wait begins at the end of an instance. The kubelet starts a container that it killed itself in the same sync, and that
sync still sees the state from before the kill. So the back-off counts from the end of the instance before the killed
one. Only if that back-off delays the start, it counts from the end of the killed instance, as after any other end.

Seconds of the steady clock; the moment of an exit is the runtime's wall clock, `skew` is how far that one has been set
away from ours.
"""

from typing import Any

from services.podsync.core.pod.progress import InstanceFacts
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.saved import CrashBackoff, with_container
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState
from shared.podspec.hashing import backoff_key
from shared.time.backoff import Backoff

# The cap is of the configuration. The reset counts from the newest start that was counted, whether the container ran or
# waited since.
RESTARTS = Backoff(initial=10.0, reset_after=600.0)
NANOSECONDS = 1e9


def backoff_until(
    record: PodRecord, spec: dict[str, Any], instances: list[Container], *, now: float, skew: float
) -> tuple[PodRecord, float]:
    """Until when the container must wait, 0 when it may start now; `instances` are its own, newest first. For one that
    we killed for its successor the first result is in the record, as it is the kubelet's in the sync of the kill."""
    exited = newest_exited(instances)
    entry = _entry(record, spec, now)
    if exited is None or entry is None or entry.instance == exited.id:
        return record, 0.0  # nothing has ended, or the start after this very exit was decided already
    if _starts_with_its_kill(record, exited):
        before = _before(exited, instances)
        if before is None:
            return record, 0.0
        record = _with_end(record, before, now, skew)
        if _ends_at(record, entry, before) <= now:
            return record, 0.0
        container = replace(record.saved.container(exited.name), held_back=exited.id)
        record = replace(record, saved=with_container(record.saved, exited.name, container))
    record = _with_end(record, exited, now, skew)
    return record, _ends_at(record, entry, exited)


def count_start(
    record: PodRecord, spec: dict[str, Any], instances: list[Container], *, now: float, maximum: float
) -> PodRecord:
    """The record with the start of another attempt after these: the next one waits twice as long, up to `maximum`
    seconds. The first kill of a container is not counted: nothing had ended when its successor was started."""
    exited = newest_exited(instances)
    if exited is None or (_starts_with_its_kill(record, exited) and _before(exited, instances) is None):
        return record
    container, key = record.saved.container(spec["name"]), backoff_key(record.saved.pod, spec)
    known = container.crash_backoff
    if known is not None and known.key == key and known.instance == exited.id:
        return record
    entry = _entry(record, spec, now)
    seconds = replace(RESTARTS, cap=maximum).next_delay(entry.seconds if entry is not None else 0.0)
    counted = CrashBackoff(key=key, seconds=seconds, updated=now, instance=exited.id)
    container = replace(container, crash_backoff=counted)
    return replace(record, saved=with_container(record.saved, spec["name"], container))


def newest_exited(instances: list[Container]) -> Container | None:
    """The newest instance that ran to an end."""
    return next((c for c in instances if c.state is ContainerState.EXITED), None)


def _entry(record: PodRecord, spec: dict[str, Any], now: float) -> CrashBackoff | None:
    """What was counted for this container as its spec is now, unless that is forgotten."""
    entry = record.saved.container(spec["name"]).crash_backoff
    if entry is None or entry.key != backoff_key(record.saved.pod, spec) or _forgotten_at(entry) <= now:
        return None
    return entry


def _forgotten_at(entry: CrashBackoff) -> float:
    return entry.updated + RESTARTS.reset_after


def _starts_with_its_kill(record: PodRecord, exited: Container) -> bool:
    """We killed it for its successor, and that one has not been held back since."""
    container = record.saved.container(exited.name)
    return container.replacing == exited.id and container.held_back != exited.id


def _before(exited: Container, instances: list[Container]) -> Container | None:
    return newest_exited([c for c in instances if c.id != exited.id])


def _ends_at(record: PodRecord, entry: CrashBackoff, exited: Container) -> float:
    """When the back-off after this end is over; it is too once the entry is forgotten."""
    finished = record.instance_facts[exited.id].ended or 0.0  # never later than when it was seen first: see _with_end
    return min(finished + entry.seconds, _forgotten_at(entry))


def _with_end(record: PodRecord, exited: Container, now: float, skew: float) -> PodRecord:
    """The record with the moment when the instance ended, never in the future: an exit from before the clock was set
    back may seem to be. Computed once: a clock that is set afterwards does not change it."""
    facts = record.instance_facts.get(exited.id, InstanceFacts())
    if facts.ended is not None:
        return record
    there = {c.id for c in record.instances}
    kept = {instance: found for instance, found in record.instance_facts.items() if found.probes or instance in there}
    facts = replace(facts, ended=min(exited.finished_at / NANOSECONDS - skew, now))
    return replace(record, instance_facts={**kept, exited.id: facts})
