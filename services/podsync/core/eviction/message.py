"""Writes the texts of an eviction: the pod's message, the annotations of its event, the node's event (node.md 5.6)."""

from collections.abc import Iterable, Mapping

from bus.messages.usage import ContainerUsage
from services.podsync.core.eviction.ranking import Candidate
from services.podsync.core.eviction.signals import SignalObservation
from services.podsync.core.eviction.thresholds import Threshold
from shared.model.eviction import SIGNALS, Resource, threshold_amount
from shared.model.quantity import Quantity, parse_quantity
from shared.podspec.resources import main_containers, pod_level, resource_list

EVICTED = "Evicted"


def node_event(threshold: Threshold) -> str:
    """Return the text of the node's event EvictionThresholdMet."""
    return f"Attempting to reclaim {SIGNALS[threshold.signal].resource}"


def eviction_text(
    candidate: Candidate, acted: Threshold, met: Iterable[Threshold], readings: Mapping[str, SignalObservation]
) -> tuple[str, dict[str, str]]:
    """Return the message of the pod's status and event, and the annotations of the event. `met`: the thresholds in the
    order in which they are acted on."""
    resource = SIGNALS[acted.signal].resource
    message = f"The node was low on resource: {resource}. "
    for threshold in met:
        meaning, reading = SIGNALS[threshold.signal], readings.get(threshold.signal)
        if meaning.resource is resource and reading is not None:
            limit = _limit(threshold, reading.capacity)
            available = Quantity.of_base(reading.available, binary=meaning.in_bytes)
            message += f"Threshold quantity: {limit}, available: {available}. "
            break
    annotations = {"starved_resource": str(resource)}
    requested = pod_level(candidate.pod, "requests").get("memory") if resource is Resource.MEMORY else None
    used = candidate.usage.cgroup.memory_working_set if candidate.usage and candidate.usage.cgroup else None
    if requested is not None and used is not None:
        name, shown = (candidate.pod.get("metadata") or {}).get("name"), Quantity.of_base(used, binary=True)
        message += f"Pod {name} was using {shown}, request is {requested}, has larger consumption of {resource}. "
        annotations |= {"offending_pod": str(name), "offending_pod_usage": str(shown)}
    offenders = _offenders(candidate, resource)
    for container, amount, request in offenders:
        message += (
            f"Container {container} was using {amount}, request is {request}, has larger consumption of {resource}. "
        )
    annotations["offending_containers"] = ",".join(name for name, _, _ in offenders)
    annotations["offending_containers_usage"] = ",".join(str(amount) for _, amount, _ in offenders)
    return message, annotations


def _limit(threshold: Threshold, capacity: int) -> Quantity:
    if not threshold.amount.endswith("%"):
        return parse_quantity(threshold.amount)
    in_bytes = SIGNALS[threshold.signal].in_bytes
    return Quantity.of_base(threshold_amount(threshold.amount, capacity), binary=in_bytes)


def _offenders(candidate: Candidate, resource: Resource) -> list[tuple[str, Quantity, Quantity]]:
    """Return the containers that use more than they request: name, usage, request."""
    offenders = []
    specs = {spec.get("name"): spec for spec in main_containers(candidate.pod)}
    for usage in candidate.usage.containers if candidate.usage else ():
        amount, spec = _amount(usage, resource), specs.get(usage.name)
        if amount is None or spec is None:
            continue
        used = Quantity.of_base(amount, binary=True)
        request = resource_list(spec, "requests").get(str(resource), Quantity.of_base(0))
        if used > request:
            offenders.append((usage.name, used, request))
    return offenders


def _amount(usage: ContainerUsage, resource: Resource) -> int | None:
    if resource is Resource.MEMORY:
        return usage.cgroup.memory_working_set if usage.cgroup else None
    if resource is Resource.EPHEMERAL_STORAGE:
        parts = [part.used for part in (usage.rootfs, usage.logs) if part is not None and part.used is not None]
        return sum(parts) if parts else None
    return None
