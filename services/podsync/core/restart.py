"""Whether a container is started (again), and when: restart policy and crash-loop back-off (pods.md 5.3, 7.2).

Seconds of the steady clock; the moment of an exit is the runtime's wall clock, `skew` is how far that one has been set
away from ours.
"""

from typing import Any

from services.podsync.core.record import CrashBackoff, PodRecord
from services.podsync.core.restart_rules import kind_of, restarts_after, restarts_all, restarts_failed
from shared.model.runtime import Container, ContainerState
from shared.podspec.containers import ContainerKind
from shared.podspec.hashing import backoff_key

__all__ = [
    "backoff_until",
    "count_start",
    "has_initialized",
    "init_failed",
    "newest_exited",
    "restarts_after",
    "restarts_all",
    "should_restart",
]

INITIAL_SECONDS = 10.0
RESET_AFTER_SECONDS = 600.0
CLOCK_WAS_SET_SECONDS = 5.0  # an exit further in the future than that was dated by another clock than ours
NANOSECONDS = 1e9


def should_restart(record: PodRecord, spec: dict[str, Any], instance: Container | None) -> bool:
    """Would the kubelet start this container, of whatever kind, now, back-off and order aside?
    (ShouldContainerBeRestarted)"""
    if record.deletion_requested:
        return False
    ephemeral = kind_of(record, spec) is ContainerKind.EPHEMERAL
    if instance is None:
        return not (ephemeral and spec["name"] in record.attempts)  # it had its one start, wherever that has gone
    if instance.state is ContainerState.CREATED:
        return True
    if instance.state is ContainerState.UNKNOWN:
        return not ephemeral
    if instance.state is ContainerState.RUNNING:
        return False
    if record.replacing.get(spec["name"]) == instance.id:
        return True  # killed for the very purpose, whatever the policy says of containers that end by themselves
    if kind_of(record, spec) is ContainerKind.INIT:
        return init_failed(instance) and restarts_failed(record, spec, instance.exit_code)
    return restarts_after(record, spec, instance.exit_code)


def init_failed(instance: Container) -> bool:
    """Has this run of an init container failed?"""
    return instance.exit_code != 0 or instance.reason == "OOMKilled"


def has_initialized(record: PodRecord) -> bool:
    """Are the init containers behind the pod? So they are while a regular one is made or runs; of those that have
    ended nothing follows, for a pod initialises again in a new sandbox."""
    if not record.init_containers:
        return True
    sandbox = record.sandboxes[0].id if record.sandboxes else ""
    for spec in record.containers:
        newest = next(iter(record.instances_of(str(spec["name"]))), None)
        if newest is None:
            continue
        if newest.state is ContainerState.RUNNING:
            return True
        if newest.state is ContainerState.CREATED and newest.sandbox_id == sandbox:
            return True
    return False


def backoff_until(
    record: PodRecord, spec: dict[str, Any], exited: Container | None, *, now: float, skew: float
) -> float:
    """Until when the container must wait, 0 when it may start now."""
    entry = record.crash_backoff.get(spec["name"])
    if exited is None or entry is None or entry.key != _key(record, spec):
        return 0.0
    if entry.instance == exited.id:
        return 0.0  # the start after this very exit was decided already: repeating it is not another restart
    finished = _finished(record, exited, now, skew)
    if exited.finished_at / NANOSECONDS - skew > now + CLOCK_WAS_SET_SECONDS:
        finished = entry.updated  # by a clock of an earlier life, set back since: "now" would never come to an end
    if finished - entry.updated > RESET_AFTER_SECONDS:
        return 0.0
    return finished + entry.seconds


def count_start(
    record: PodRecord, spec: dict[str, Any], exited: Container | None, *, now: float, maximum: float, skew: float
) -> None:
    """Note the start of another attempt after `exited`: the next one waits twice as long, up to `maximum` seconds."""
    if exited is None:
        return
    entry = record.crash_backoff.get(spec["name"])
    key = _key(record, spec)
    if entry is not None and entry.key == key and entry.instance == exited.id:
        return
    finished = _finished(record, exited, now, skew)
    if entry is None or entry.key != key or finished - entry.updated > RESET_AFTER_SECONDS:
        seconds = min(INITIAL_SECONDS, maximum)
    else:
        seconds = min(entry.seconds * 2, maximum)
    record.crash_backoff[spec["name"]] = CrashBackoff(key=key, seconds=seconds, updated=now, instance=exited.id)


def _finished(record: PodRecord, exited: Container, now: float, skew: float) -> float:
    """When it ended, never in the future; an exit from before the clock was set back may seem to be. Worked out once:
    a clock that is set afterwards changes nothing about it."""
    if exited.id not in record.ended:
        there = {c.id for c in record.instances}
        record.ended = {known: at for known, at in record.ended.items() if known in there}
        record.ended[exited.id] = min(exited.finished_at / NANOSECONDS - skew, now)
    return record.ended[exited.id]


def newest_exited(instances: list[Container]) -> Container | None:
    """The newest instance that ran to an end."""
    return next((c for c in instances if c.state is ContainerState.EXITED), None)


def _key(record: PodRecord, spec: dict[str, Any]) -> str:
    return backoff_key(record.pod, spec)
