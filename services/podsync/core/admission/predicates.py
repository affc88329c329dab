"""Decides whether a pod fits the node beside its other pods: room, labels, name, ports, taints (pods.md 3.2). Pure."""

from msgspec import Struct

from services.podsync.core.admission.node_view import NodeView
from services.podsync.core.admission.taints import NO_EXECUTE, untolerated
from services.podsync.core.admission.taken import Taken, port_address
from shared.model.objects import Object, uid
from shared.model.quantity import ZERO, Quantity
from shared.podspec.node_selector import matches_node
from shared.podspec.pod_source import is_static
from shared.podspec.ports import HostPort, host_ports
from shared.podspec.resources import HUGEPAGES, is_extended, parse_resources, pod_requests

PODS = "pods"
_FIRST = ("cpu", "memory", "ephemeral-storage")


class PredicateFailure(Struct, frozen=True, kw_only=True):
    """Has one reason why a pod does not fit. For a lack of room it has the `resource`, and how much is `lacking` in the
    unit of `in_unit`."""

    reason: str
    message: str
    resource: str = ""
    lacking: int = 0


def in_unit(resource: str, amount: Quantity) -> int:
    """Return cpu in thousandths, everything else in base units: the units of messages and preemption."""
    return amount.milli() if resource == "cpu" else amount.base()


def predicate_failures(pod: Object, view: NodeView, others: Taken) -> list[PredicateFailure]:
    """Return everything that does not fit, in the kubelet's order; the first failure is reported."""
    found = _check_room(pod, view, others)
    name = view.facts.node_name
    if not matches_node(pod, name, view.labels):
        found.append(_predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"))
    wanted = (pod.get("spec") or {}).get("nodeName")
    if wanted and wanted != name:
        found.append(_predicate("NodeName", "node(s) didn't match the requested node name"))
    if any(others.has_port(port, uid(pod)) for port in host_ports(pod)):
        found.append(_predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports"))
    if not is_static(pod) and untolerated(pod, view.taints, NO_EXECUTE):
        found.append(_predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
    return found


def _predicate(name: str, text: str) -> PredicateFailure:
    return PredicateFailure(reason=name, message=f"Predicate {name} failed: {text}")


def _check_room(pod: Object, view: NodeView, others: Taken) -> list[PredicateFailure]:
    allocatable = parse_resources(view.allocatable)
    found = []
    if PODS in allocatable and others.count + 1 > allocatable[PODS].base():
        found.append(_lack(PODS, 1, others.count, allocatable[PODS].base()))
    requests = {name: amount for name, amount in pod_requests(pod).items() if amount}
    if not requests:
        return found
    ordered = [*_FIRST, *sorted(name for name in requests if name not in _FIRST)]
    for name in ordered:
        if name not in requests or not (name in allocatable or _is_counted_by_kind(name)):
            continue  # an extended resource that the node does not know is not checked
        wanted, capacity = in_unit(name, requests[name]), in_unit(name, allocatable.get(name, ZERO))
        taken = in_unit(name, others.used.get(name, ZERO))
        if wanted + taken > capacity:
            found.append(_lack(name, wanted, taken, capacity))
    return found


def _is_counted_by_kind(resource: str) -> bool:
    """Return whether a node that does not list the resource has none of it: huge pages, and names of Kubernetes'
    domain."""
    return resource.startswith(HUGEPAGES) or ("/" in resource and not is_extended(resource))


def _lack(resource: str, requested: int, used: int, capacity: int) -> PredicateFailure:
    numbers = f"requested: {requested}, used: {used}, capacity: {capacity}"
    return PredicateFailure(
        reason=f"OutOf{resource}",
        message=f"Node didn't have enough resource: {resource}, {numbers}",
        resource=resource,
        lacking=requested + used - capacity,
    )


def collide(mine: HostPort, theirs: HostPort) -> bool:
    """Return whether two pods cannot both have these ports of the node."""
    if (mine.protocol, mine.port) != (theirs.protocol, theirs.port):
        return False
    return "" in (port_address(mine), port_address(theirs)) or mine.ip == theirs.ip
