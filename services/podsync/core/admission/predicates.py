"""Whether a pod fits the node beside those it has: room, labels, name, ports, taints (pods.md 3.2). Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from services.podsync.core.admission.node_view import NodeView
from services.podsync.core.admission.taints import NO_EXECUTE, untolerated
from shared.model.objects import Object, uid
from shared.model.quantity import ZERO, Quantity
from shared.podspec.node_selector import matches_node
from shared.podspec.pod_source import is_static
from shared.podspec.ports import HostPort, host_ports
from shared.podspec.resources import ResourceList, parse_resources, pod_requests

PODS = "pods"
_EVERY_ADDRESS = ("", "0.0.0.0")
_FIRST = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, kw_only=True)
class PredicateFailure:
    """One thing that does not fit. `resource` is set for a lack of room, with how much is lacking in its own unit."""

    reason: str
    message: str
    resource: str = ""
    lacking: int = 0


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What the pods of the node take, added up once for any number of decisions."""

    pods: Mapping[str, Object]  # by UID; may have the pod that is decided, which is not counted below
    count: int
    used: ResourceList
    # Protocol and number -> address ("" = every one) -> UIDs; may have those of the pod that is decided.
    ports: Mapping[tuple[str, int], Mapping[str, Collection[str]]]

    def without(self, pod: Object) -> "Taken":
        """The same when `pod`, one of them, is not counted."""
        used = dict(self.used)
        for name, amount in pod_requests(pod).items():
            used[name] = used[name] - amount
        return Taken(pods=self.pods, count=self.count - 1, used=used, ports=self.ports)

    def resized(self, before: Object, after: Object) -> "Taken":
        """The same when one of them, `before`, has the resources of `after`."""
        used = _used([after], self.without(before).used)
        return Taken(pods={**self.pods, uid(after): after}, count=self.count, used=used, ports=self.ports)


def taken_by(pods: Sequence[Object]) -> Taken:
    """What these pods take."""
    ports: dict[tuple[str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for pod in pods:
        for port in host_ports(pod):
            ports[port.protocol, port.port][_address(port)].add(uid(pod))
    return Taken(pods={uid(pod): pod for pod in pods}, count=len(pods), used=_used(pods, {}), ports=ports)


def in_unit(resource: str, amount: Quantity) -> int:
    """cpu in thousandths, everything else in base units: what messages and preemption count in."""
    return amount.milli() if resource == "cpu" else amount.base()


def predicate_failures(pod: Object, view: NodeView, others: Taken) -> list[PredicateFailure]:
    """Everything that does not fit, in the kubelet's order; the first is what is reported."""
    found = _room(pod, view, others)
    name = view.facts.node_name
    if not matches_node(pod, name, view.labels):
        found.append(_predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"))
    wanted = (pod.get("spec") or {}).get("nodeName")
    if wanted and wanted != name:
        found.append(_predicate("NodeName", "node(s) didn't match the requested node name"))
    if any(_is_taken(port, uid(pod), others) for port in host_ports(pod)):
        found.append(_predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports"))
    if not is_static(pod) and untolerated(pod, view.taints, NO_EXECUTE):
        found.append(_predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
    return found


def _predicate(name: str, text: str) -> PredicateFailure:
    return PredicateFailure(reason=name, message=f"Predicate {name} failed: {text}")


def _room(pod: Object, view: NodeView, others: Taken) -> list[PredicateFailure]:
    allocatable = parse_resources(view.allocatable)
    found = []
    if PODS in allocatable and others.count + 1 > allocatable[PODS].base():
        found.append(_lack(PODS, 1, others.count, allocatable[PODS].base()))
    requests = {name: amount for name, amount in pod_requests(pod).items() if amount}
    if not requests:
        return found
    ordered = [*_FIRST, *sorted(name for name in requests if name not in _FIRST)]
    for name in ordered:
        if name not in requests or name not in allocatable:
            continue  # a resource that the node does not know is not checked
        wanted, capacity = in_unit(name, requests[name]), in_unit(name, allocatable[name])
        taken = in_unit(name, others.used.get(name, ZERO))
        if wanted + taken > capacity:
            found.append(_lack(name, wanted, taken, capacity))
    return found


def _used(pods: Iterable[Object], before: ResourceList) -> ResourceList:
    """What the pods request, added to `before`."""
    total = dict(before)
    for pod in pods:
        for name, amount in pod_requests(pod).items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _lack(resource: str, requested: int, used: int, capacity: int) -> PredicateFailure:
    numbers = f"requested: {requested}, used: {used}, capacity: {capacity}"
    return PredicateFailure(
        reason=f"OutOf{resource}",
        message=f"Node didn't have enough resource: {resource}, {numbers}",
        resource=resource,
        lacking=requested + used - capacity,
    )


def _address(port: HostPort) -> str:
    return "" if port.ip in _EVERY_ADDRESS else port.ip


def _is_taken(port: HostPort, own: str, others: Taken) -> bool:
    """Whether a pod with another UID than `own` has the port. Takes as long with any number of pods."""
    by_address, address = others.ports.get((port.protocol, port.port), {}), _address(port)
    found = by_address.values() if not address else (by_address.get(each, ()) for each in ("", address))
    return any(other != own for uids in found for other in uids)


def collide(mine: HostPort, theirs: HostPort) -> bool:
    """Whether two pods cannot both have their port."""
    if (mine.protocol, mine.port) != (theirs.protocol, theirs.port):
        return False
    return "" in (_address(mine), _address(theirs)) or mine.ip == theirs.ip
