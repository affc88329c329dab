"""Chooses the pods that make room for a critical one that does not fit, and decides how long that one waits for them
(pods.md 3.5, 4.4). Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from bus.messages.podsync import PodState
from services.podsync.core.admission.predicates import PODS, in_unit
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model import objects
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.quantity import ZERO
from shared.podspec.pod_source import is_critical
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import pod_requests

Lacking = dict[str, int]  # resource -> amount in its unit


class NoVictimsError(Exception):
    """No set of pods would make enough room; the text is the kubelet's."""


def preemptable(pod: Object, victim: Object) -> bool:
    """Return whether `victim` may be preempted for `pod`."""
    if is_critical(pod) and not is_critical(victim):
        return True
    mine, theirs = _priority(pod), _priority(victim)
    return mine is not None and theirs is not None and mine > theirs


def choose_victims(pod: Object, others: Sequence[Object], lacking: Mapping[str, int]) -> tuple[str, ...]:
    """Return the UIDs of the pods to end: as few and as small as suffice, BestEffort before Burstable before
    Guaranteed. Raises NoVictimsError."""
    by_class: dict[QosClass, list[Object]] = {kind: [] for kind in QosClass}
    for other in others:
        if preemptable(pod, other):
            by_class[qos_class(other)].append(other)
    small, middle, large = (by_class[k] for k in (QosClass.BEST_EFFORT, QosClass.BURSTABLE, QosClass.GUARANTEED))
    short = _without(dict(lacking), [*small, *middle, *large])
    if short:
        texts = "".join(f"(res: {name}, q: {amount}), " for name, amount in short.items())
        raise NoVictimsError(f"no set of running pods found to reclaim resources: [{texts}]")
    from_large = _nearest(large, _without(dict(lacking), [*small, *middle]))
    from_middle = _nearest(middle, _without(dict(lacking), [*small, *from_large]))
    from_small = _nearest(small, _without(dict(lacking), [*from_middle, *from_large]))
    return tuple(objects.uid(victim) for victim in (*from_small, *from_middle, *from_large))


def wait_for_victims(
    tracked: TrackedPod, pods: Mapping[str, TrackedPod], now: float
) -> tuple[TrackedPod, float, list[TrackedPod]]:
    """Return the pod without the victims whose grace is over; the moment until which it waits for the others, 0 = all
    have stopped; and the victims whose grace is over, with the event for it. `pods`: by UID."""
    until, late = 0.0, []
    for uid in tracked.saved.victims:
        victim = pods.get(uid)
        if victim is None or victim.saved.state not in (PodState.SYNC, PodState.TERMINATING):
            continue
        limit = victim.saved.terminating_since + max(1.5 * victim.saved.grace_seconds, 10.0)
        if limit <= now:
            left = tuple(other for other in tracked.saved.victims if other != uid)
            tracked = replace(tracked, saved=replace(tracked.saved, victims=left))
            text = "Container runtime did not kill the pod within specified grace period."
            late.append(victim.with_event("Warning", "ExceededGracePeriod", text, ""))
        until = max(until, limit)
    return tracked, until if tracked.saved.victims else 0.0, late


def _priority(pod: Object) -> int | None:
    priority: Any = (pod.get("spec") or {}).get("priority")
    return priority if isinstance(priority, int) else None


def _amount(pod: Object, resource: str) -> int:
    return 1 if resource == PODS else in_unit(resource, pod_requests(pod).get(resource, ZERO))


def _without(lacking: Lacking, pods: Sequence[Object]) -> Lacking:
    """Return what is still lacking once these pods are gone."""
    left = {name: amount - sum(_amount(pod, name) for pod in pods) for name, amount in lacking.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _nearest(pods: Sequence[Object], lacking: Lacking) -> list[Object]:
    """Choose pods until nothing is lacking: each time the pod that leaves the least lacking, and of equals the one that
    requests less memory, then less cpu."""
    candidates, chosen = list(pods), []
    while lacking and candidates:
        best = min(candidates, key=lambda pod: (_distance(pod, lacking), _amount(pod, "memory"), _amount(pod, "cpu")))
        candidates.remove(best)
        chosen.append(best)
        lacking = _without(lacking, [best])
    return chosen


def _distance(pod: Object, lacking: Lacking) -> float:
    left = {name: max(0, amount - _amount(pod, name)) for name, amount in lacking.items()}
    return sum((left[name] / amount) ** 2 for name, amount in lacking.items())
