"""Evaluates one cycle of eviction: from readings to the pressure conditions and the threshold to act on (node.md 5.3).

Moments are seconds of one steady clock, which the caller chooses.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from services.podsync.core.eviction.signals import SignalObservation
from services.podsync.core.eviction.thresholds import Threshold, met, not_reclaimed
from shared.model.eviction import SIGNALS, Resource

_FILESYSTEM = (Resource.EPHEMERAL_STORAGE, Resource.INODES)


class CycleState(Struct, frozen=True, kw_only=True):
    """Has what one cycle keeps for the next."""

    first_met: Mapping[Threshold, float] = field(default_factory=dict)
    last_met: Mapping[str, float] = field(default_factory=dict)  # condition -> when a threshold of it was met last
    acted_on: frozenset[Threshold] = frozenset()  # met longer than their grace period in the cycle before
    read_at: Mapping[str, float] = field(default_factory=dict)  # signal -> time of its newest reading


class CycleResult(Struct, frozen=True, kw_only=True):
    """Has the result of a cycle: the conditions that are True, and the thresholds to act on, the first one first."""

    memory: CycleState
    conditions: frozenset[str] = frozenset()
    act_on: tuple[Threshold, ...] = ()


def evaluate(
    before: CycleState,
    thresholds: tuple[Threshold, ...],
    readings: Mapping[str, SignalObservation],
    now: float,
    transition_seconds: float,
) -> CycleResult:
    """Evaluate all thresholds. `transition_seconds`: how long a condition stays True after a threshold of it was met.

    A threshold that was acted on stays met until its minimum reclaim is available; one whose signal was not read
    again since then is not acted on twice.
    """
    crossed = met(thresholds, readings) | not_reclaimed(before.acted_on, readings)
    first_met = {threshold: before.first_met.get(threshold, now) for threshold in crossed}
    last_met = {**before.last_met, **{SIGNALS[threshold.signal].condition: now for threshold in crossed}}
    last_met = {kind: at for kind, at in last_met.items() if now - at < transition_seconds or at == now}
    due = frozenset(threshold for threshold in crossed if now - first_met[threshold] >= threshold.grace_seconds)
    fresh = [t for t in thresholds if t in due and readings[t.signal].at != before.read_at.get(t.signal)]
    memory = CycleState(
        first_met=first_met,
        last_met=last_met,
        acted_on=due,
        read_at={signal: reading.at for signal, reading in readings.items()},
    )
    return CycleResult(memory=memory, conditions=frozenset(last_met), act_on=tuple(sorted(fresh, key=_order)))


def is_of_filesystem(threshold: Threshold) -> bool:
    """Return whether dead containers and unused images are removed before a pod is evicted."""
    return SIGNALS[threshold.signal].resource in _FILESYSTEM


def _order(threshold: Threshold) -> int:
    """Return the sort key of a threshold: memory first, process ids last; otherwise the configuration's order stays."""
    return {Resource.MEMORY: 0, Resource.PIDS: 2}.get(SIGNALS[threshold.signal].resource, 1)
