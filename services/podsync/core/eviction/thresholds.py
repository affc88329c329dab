"""Lists the configured thresholds, and finds those that readings meet (node.md 5.2, 5.3)."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from services.podsync.core.eviction.signals import Layout, SignalObservation
from shared.model.eviction import SIGNALS, reclaim_amount, threshold_amount
from shared.model.frozen_copy import replace

MEMORY, ALLOCATABLE_MEMORY = "memory.available", "allocatableMemory.available"
_COPIED = ("available", "inodesFree")


class Threshold(Struct, frozen=True, kw_only=True):
    """Is met while less than `amount` of `signal` is available, and then until `minimum_reclaim` more is available.
    Both are a quantity or a percentage of the capacity. `grace_seconds`: how long it is met before pods are evicted; 0
    = a hard threshold."""

    signal: str
    amount: str
    grace_seconds: float = 0.0
    minimum_reclaim: str = "0"

    @property
    def hard(self) -> bool:
        """Whether pods are evicted at once."""
        return self.grace_seconds == 0


class EvictionConfiguration(Struct, frozen=True, kw_only=True):
    """Has the keys of the configuration, as checked by `shared/config/rules_eviction.py`. `soft_grace`: seconds.
    `enforce_pods`: "pods" is in enforceNodeAllocatable."""

    hard: Mapping[str, str]
    soft: Mapping[str, str]
    soft_grace: Mapping[str, float]
    minimum_reclaim: Mapping[str, str]
    enforce_pods: bool


def thresholds_of(configured: EvictionConfiguration, layout: Layout) -> tuple[Threshold, ...]:
    """Return all thresholds, hard ones first. Those of containerfs are copies of those of the filesystem it is on."""
    reclaims = configured.minimum_reclaim
    thresholds = [
        Threshold(signal=signal, amount=amount, minimum_reclaim=reclaims.get(signal, "0"))
        for signal, amount in configured.hard.items()
    ]
    if configured.enforce_pods:
        thresholds += [replace(t, signal=ALLOCATABLE_MEMORY) for t in thresholds if t.signal == MEMORY]
    thresholds += [
        Threshold(
            signal=signal,
            amount=amount,
            grace_seconds=configured.soft_grace.get(signal, 0.0),
            minimum_reclaim=reclaims.get(signal, "0"),
        )
        for signal, amount in configured.soft.items()
    ]
    copied_from = "imagefs" if layout is Layout.DEDICATED_IMAGES else "nodefs"
    thresholds = [t for t in thresholds if not t.signal.startswith("containerfs.")]
    copies = {f"{copied_from}.{what}": f"containerfs.{what}" for what in _COPIED}
    thresholds += [replace(t, signal=copies[t.signal]) for t in thresholds if t.signal in copies]
    return tuple(t for t in thresholds if t.signal in SIGNALS and _can_be_met(t.amount))


def met(thresholds: Iterable[Threshold], readings: Mapping[str, SignalObservation]) -> frozenset[Threshold]:
    """Return the thresholds that their signal's reading is below."""
    return frozenset(t for t in thresholds if _below(t, readings.get(t.signal), reclaim=False))


def not_reclaimed(thresholds: Iterable[Threshold], readings: Mapping[str, SignalObservation]) -> frozenset[Threshold]:
    """Return those of thresholds that were met whose minimum reclaim is not available yet."""
    return frozenset(t for t in thresholds if _below(t, readings.get(t.signal), reclaim=True))


def may_reclaim_containers(threshold: Threshold, layout: Layout) -> bool:
    """Return whether removing dead containers frees the filesystem of this signal (node.md 5.4)."""
    on_nodefs = threshold.signal.startswith("nodefs.")
    if layout is Layout.SPLIT:
        return on_nodefs or threshold.signal.startswith("containerfs.")
    return layout is Layout.SINGLE or not on_nodefs


def may_reclaim_images(threshold: Threshold, layout: Layout) -> bool:
    """Return whether removing images frees the filesystem of this signal (node.md 5.4)."""
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
    """Return whether the threshold exists: 0% and 100% remove it."""
    return not amount.endswith("%") or 0 < float(amount[:-1]) < 100
