"""Whether a container is started (again), and when: restart policy and crash-loop back-off (pods.md 5.3, 7.2).

Seconds of the steady clock; the moment of an exit is the runtime's wall clock, `skew` is how far that one has been set
away from ours.
"""

from typing import Any

from services.podsync.core.record import CrashBackoff, PodRecord
from shared.model.runtime import Container, ContainerState
from shared.podspec.hashing import backoff_key

INITIAL_SECONDS = 10.0
RESET_AFTER_SECONDS = 600.0
NANOSECONDS = 1e9


def should_restart(record: PodRecord, spec: dict[str, Any], instance: Container | None) -> bool:
    """Would the kubelet start this container now, back-off aside? (ShouldContainerBeRestarted)"""
    if (record.pod.get("metadata") or {}).get("deletionTimestamp"):
        return False
    if instance is None or instance.state in (ContainerState.UNKNOWN, ContainerState.CREATED):
        return True
    if instance.state is ContainerState.RUNNING:
        return False
    if record.replacing.get(spec["name"]) == instance.id:
        return True  # killed for the very purpose, whatever the policy says of containers that end by themselves
    return restarts_after(record, spec, instance.exit_code)


def restarts_after(record: PodRecord, spec: dict[str, Any], exit_code: int) -> bool:
    """Does the restart policy start the container again after this exit code?"""
    policy = record.spec.get("restartPolicy", "Always")
    return bool(policy == "Always" or (policy == "OnFailure" and exit_code != 0))


def backoff_until(
    record: PodRecord, spec: dict[str, Any], exited: Container | None, *, now: float, skew: float
) -> float:
    """Until when the container must wait, 0 when it may start now."""
    entry = record.crash_backoff.get(spec["name"])
    if exited is None or entry is None or entry.key != _key(record, spec):
        return 0.0
    if entry.instance == exited.id:
        return 0.0  # the start after this very exit was decided already: repeating it is not another restart
    finished = _finished(exited, now, skew)
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
    finished = _finished(exited, now, skew)
    if entry is None or entry.key != key or finished - entry.updated > RESET_AFTER_SECONDS:
        seconds = min(INITIAL_SECONDS, maximum)
    else:
        seconds = min(entry.seconds * 2, maximum)
    record.crash_backoff[spec["name"]] = CrashBackoff(key=key, seconds=seconds, updated=now, instance=exited.id)


def _finished(exited: Container, now: float, skew: float) -> float:
    """When it ended, never in the future; an exit from before the clock was set back may seem to be."""
    return min(exited.finished_at / NANOSECONDS - skew, now)


def newest_exited(instances: list[Container]) -> Container | None:
    """The newest instance that ran to an end."""
    return next((c for c in instances if c.state is ContainerState.EXITED), None)


def _key(record: PodRecord, spec: dict[str, Any]) -> str:
    return backoff_key(record.pod, spec)
