"""Decides which dead containers are removed beyond those that each pod removes itself: by the limits of the node, and
all of finished pods when a filesystem is full (node.md 5.4, 6.2).

A pod that has not finished keeps the newest instance of each container: its next start depends on it.
"""

from collections.abc import Iterable

from msgspec import Struct

from bus.messages.podsync import PodState
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState

NANOSECONDS = 1e9


class GarbageLimits(Struct, frozen=True, kw_only=True):
    """Has the configured limits. `minimum_age`: seconds since the creation of a container; `per_container`: dead
    instances that each container keeps; `total`: dead containers on the node. A negative number means no limit."""

    minimum_age: float = 0.0
    per_container: int = 1
    total: int = -1


class _Unit(Struct, frozen=True, kw_only=True):
    """Has the removable instances of one container, the newest first."""

    uid: str
    finished: bool
    dead: tuple[Container, ...]


def garbage(
    pods: Iterable[TrackedPod], limits: GarbageLimits, wall: float, *, pressed: bool = False
) -> dict[str, frozenset[str]]:
    """Return the ids of the containers to remove, by pod UID. `wall`: seconds of the wall clock; `pressed`: finished
    pods keep nothing."""
    units = [unit for tracked in pods for unit in _units(tracked, (wall - limits.minimum_age) * NANOSECONDS)]
    left = [_cut(unit, 0 if pressed and unit.finished else limits.per_container) for unit in units]
    if limits.total >= 0 and _count(left) > limits.total:
        share = max(limits.total // len([unit for unit in left if unit.dead]), 1)
        left = [_cut(unit, share) for unit in left]
        if (surplus := _count(left) - limits.total) > 0:
            oldest = sorted((c for unit in left for c in unit.dead), key=lambda c: c.created_at)[:surplus]
            gone = {container.id for container in oldest}
            left = [replace(unit, dead=tuple(c for c in unit.dead if c.id not in gone)) for unit in left]
    return _difference(units, left)


def _units(tracked: TrackedPod, created_before: float) -> list[_Unit]:
    finished = tracked.saved.state is PodState.FINISHED
    if not finished and tracked.saved.state is not PodState.SYNC:
        return []
    units = []
    for name in dict.fromkeys(container.name for container in tracked.instances):
        instances = tracked.instances_of(name)[0 if finished else 1 :]
        dead = tuple(c for c in instances if c.state is ContainerState.EXITED and c.created_at <= created_before)
        if dead:
            units.append(_Unit(uid=tracked.uid, finished=finished, dead=dead))
    return units


def _cut(unit: _Unit, limit: int) -> _Unit:
    return unit if limit < 0 else replace(unit, dead=unit.dead[:limit])


def _count(units: Iterable[_Unit]) -> int:
    return sum(len(unit.dead) for unit in units)


def _difference(before: Iterable[_Unit], after: Iterable[_Unit]) -> dict[str, frozenset[str]]:
    kept = {container.id for unit in after for container in unit.dead}
    removed: dict[str, set[str]] = {}
    for unit in before:
        if ids := {container.id for container in unit.dead} - kept:
            removed.setdefault(unit.uid, set()).update(ids)
    return {uid: frozenset(ids) for uid, ids in removed.items()}
