"""Adds up what the pods of the node take of it: resources and ports (pods.md 3.2). Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from shared.model.frozen_copy import replace
from shared.model.objects import Object, uid
from shared.model.quantity import Quantity
from shared.podspec.ports import HostPort, host_ports
from shared.podspec.resources import ResourceList, pod_requests

_EVERY_ADDRESS = ("", "0.0.0.0")


class Taken(Struct, frozen=True, kw_only=True):
    """Has what the pods of the node take, for one decision or several."""

    pods: Mapping[str, Object]  # by UID; may have the pod that is decided, which is not in the sums below
    requests: Mapping[str, ResourceList]  # of each pod by UID, as counted in `used`
    count: int
    used: ResourceList
    # Protocol and number -> address ("" = every one) -> UIDs; may have ports of the pod that is decided.
    ports: Mapping[tuple[str, int], Mapping[str, Collection[str]]]

    def without(self, pod: Object) -> "Taken":
        """Return what the others take, where `pod` is one of them."""
        used = dict(self.used)
        for name, amount in self.requests[uid(pod)].items():
            used[name] = used[name] - amount
        return replace(self, count=self.count - 1, used=used)

    def has_port(self, port: HostPort, own: str) -> bool:
        """Return whether a pod with another UID than `own` has the port, in a time that no number of pods changes."""
        by_address, address = self.ports.get((port.protocol, port.port), {}), port_address(port)
        holders = (by_address.get(key, ()) for key in ("", address)) if address else by_address.values()
        return any(other != own for uids in holders for other in uids)


class TakenSums:
    """Keeps the sums over pods that are put and removed. A change takes the same time with any number of pods."""

    def __init__(self) -> None:
        self._pods: dict[str, Object] = {}
        self._requests: dict[str, ResourceList] = {}
        self._nanos: dict[str, int] = defaultdict(int)
        self._ports: dict[tuple[str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def put(self, pod: Object, requests: ResourceList) -> None:
        """Count the pod with these requests, in place of its earlier ones."""
        own = uid(pod)
        before = self._pods.get(own)
        if before is pod and self._requests[own] is requests:
            return
        self._count(own, requests)
        if before is not pod:
            self._give_up_ports(own)
            for port in host_ports(pod):
                self._ports[port.protocol, port.port][port_address(port)].add(own)
        self._pods[own] = pod

    def remove(self, own: str) -> None:
        """Stop counting the pod with this UID; nothing happens where it is not counted."""
        if own in self._pods:
            self._count(own, {})
            self._give_up_ports(own)
            del self._pods[own], self._requests[own]

    def taken(self) -> Taken:
        """Return the sums, which are valid until the next change."""
        used = {name: Quantity(total) for name, total in self._nanos.items()}
        return Taken(pods=self._pods, requests=self._requests, count=len(self._pods), used=used, ports=self._ports)

    def _count(self, own: str, requests: ResourceList) -> None:
        for name, amount in self._requests.get(own, {}).items():
            self._nanos[name] -= amount.nanos
        for name, amount in requests.items():
            self._nanos[name] += amount.nanos
        self._requests[own] = requests

    def _give_up_ports(self, own: str) -> None:
        for port in host_ports(self._pods.get(own, {})):
            by_address, address = self._ports[port.protocol, port.port], port_address(port)
            by_address[address].discard(own)
            if not by_address[address]:
                del by_address[address]
            if not by_address:
                del self._ports[port.protocol, port.port]


def taken_by(pods: Sequence[Object], requests: Sequence[ResourceList] | None = None) -> Taken:
    """Return what these pods take; `requests`: those of each pod, where they are known."""
    sums = TakenSums()
    for pod, amounts in zip(pods, requests or map(pod_requests, pods), strict=True):
        sums.put(pod, amounts)
    return sums.taken()


def port_address(port: HostPort) -> str:
    """Return the address of the node that has the port, "" = every address."""
    return "" if port.ip in _EVERY_ADDRESS else port.ip
