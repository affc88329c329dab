"""A pod's QoS class from its resources (node.md 4.19). Looks at cpu and memory only."""

from enum import StrEnum

from shared.model.objects import Object
from shared.model.quantity import Quantity
from shared.podspec.resources import has_pod_level_resources, main_containers, resource_list


class QosClass(StrEnum):
    """As in status.qosClass."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_COUNTED = ("cpu", "memory")
_BY_NAME: dict[object, QosClass] = {qos.value: qos for qos in QosClass}


def qos_class(pod: Object) -> QosClass:
    """status.qosClass when set, else computed from spec.resources if set there, else from all regular and init
    containers (ephemeral ones never count)."""
    shown = _BY_NAME.get((pod.get("status") or {}).get("qosClass"))
    return compute_qos_class(pod) if shown is None else shown


def is_guaranteed_alone(container: Object) -> bool:
    """Return whether the container's own requests of CPU and memory are its limits, whatever its pod has."""
    requests, limits = resource_list(container, "requests"), resource_list(container, "limits")
    return all(requests.get(name) and requests[name] == limits.get(name) for name in _COUNTED)


def compute_qos_class(pod: Object) -> QosClass:
    """Compute the QoS class from the spec alone."""
    spec = pod.get("spec") or {}
    holders = [spec] if has_pod_level_resources(pod) else main_containers(pod)
    if not any(holder.get("resources") for holder in holders):
        return QosClass.BEST_EFFORT
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    all_limited = True
    for holder in holders:
        for kind, totals in (("requests", requests), ("limits", limits)):
            for name, amount in resource_list(holder, kind).items():
                if name in _COUNTED and amount.nanos > 0:
                    totals[name] = totals[name] + amount if name in totals else amount
        own_limits = resource_list(holder, "limits")
        all_limited = all_limited and all(name in own_limits and own_limits[name].nanos > 0 for name in _COUNTED)
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    return QosClass.GUARANTEED if all_limited and requests == limits else QosClass.BURSTABLE
