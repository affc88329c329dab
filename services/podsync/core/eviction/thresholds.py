"""The configured thresholds, and which of them readings meet (node.md 5.2, 5.3)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.podsync.core.eviction.signals import Layout, SignalObservation
from shared.model.eviction import SIGNALS, reclaim_amount, threshold_amount
from shared.model.frozen_copy import replace

MEMORY, ALLOCATABLE_MEMORY = "memory.available", "allocatableMemory.available"
_COPIED = ("available", "inodesFree")


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """`signal` is met below `amount`, and until `minimum_reclaim` more than that is available. Both are a quantity or a
    percentage of the capacity. `grace_seconds`: how long it is met before pods are evicted; 0 = a hard threshold."""

    signal: str
    amount: str
    grace_seconds: float = 0.0
    minimum_reclaim: str = "0"

    @property
    def hard(self) -> bool:
        """Whether pods are evicted at once."""
        return self.grace_seconds == 0


@dataclass(frozen=True, kw_only=True)
class EvictionConfiguration:
    """The keys of the configuration, as checked by `shared/config/rules_eviction.py`. `soft_grace`: seconds.
    `enforce_pods`: "pods" is in enforceNodeAllocatable."""

    hard: Mapping[str, str]
    soft: Mapping[str, str]
    soft_grace: Mapping[str, float]
    minimum_reclaim: Mapping[str, str]
    enforce_pods: bool


def thresholds_of(configured: EvictionConfiguration, layout: Layout) -> tuple[Threshold, ...]:
    """All thresholds: hard ones first. Those of containerfs are copies of the ones of the filesystem it is on."""
    reclaims = configured.minimum_reclaim
    found = [
        Threshold(signal=signal, amount=amount, minimum_reclaim=reclaims.get(signal, "0"))
        for signal, amount in configured.hard.items()
    ]
    if configured.enforce_pods:
        found += [replace(one, signal=ALLOCATABLE_MEMORY) for one in found if one.signal == MEMORY]
    found += [
        Threshold(
            signal=signal,
            amount=amount,
            grace_seconds=configured.soft_grace.get(signal, 0.0),
            minimum_reclaim=reclaims.get(signal, "0"),
        )
        for signal, amount in configured.soft.items()
    ]
    copied_from = "imagefs" if layout is Layout.DEDICATED_IMAGES else "nodefs"
    found = [one for one in found if not one.signal.startswith("containerfs.")]
    copies = {f"{copied_from}.{what}": f"containerfs.{what}" for what in _COPIED}
    found += [replace(one, signal=copies[one.signal]) for one in found if one.signal in copies]
    return tuple(one for one in found if one.signal in SIGNALS and _can_be_met(one.amount))


def met(thresholds: Iterable[Threshold], readings: Mapping[str, SignalObservation]) -> frozenset[Threshold]:
    """The thresholds below which their signal is."""
    return frozenset(one for one in thresholds if _below(one, readings.get(one.signal), reclaim=False))


def not_reclaimed(thresholds: Iterable[Threshold], readings: Mapping[str, SignalObservation]) -> frozenset[Threshold]:
    """Of thresholds that were met, those whose minimum reclaim is not available yet."""
    return frozenset(one for one in thresholds if _below(one, readings.get(one.signal), reclaim=True))


def may_reclaim_containers(threshold: Threshold, layout: Layout) -> bool:
    """Whether removing dead containers frees the filesystem of this signal (node.md 5.4)."""
    on_nodefs = threshold.signal.startswith("nodefs.")
    if layout is Layout.SPLIT:
        return on_nodefs or threshold.signal.startswith("containerfs.")
    return layout is Layout.SINGLE or not on_nodefs


def may_reclaim_images(threshold: Threshold, layout: Layout) -> bool:
    """Whether removing images frees the filesystem of this signal (node.md 5.4)."""
    return (
        layout is Layout.SINGLE
        or threshold.signal.startswith("imagefs.")
        or (layout is Layout.DEDICATED_IMAGES and threshold.signal.startswith("containerfs."))
    )


def _below(threshold: Threshold, reading: SignalObservation | None, *, reclaim: bool) -> bool:
    if reading is None:
        return False
    amount = threshold_amount(threshold.amount, reading.capacity)
    if amount and reclaim:
        amount += reclaim_amount(threshold.minimum_reclaim, reading.capacity)
    return reading.available < amount


def _can_be_met(amount: str) -> bool:
    """0% and 100% remove a threshold."""
    return not amount.endswith("%") or 0 < float(amount[:-1]) < 100
