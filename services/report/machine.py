"""Makes the rows of the node page about what the node has, what its pods request and what is used. Pure.

Amounts are cores, bytes or counts; None = not known. Texts may come from any client of the API server, so that each
is one line and the number of rows is limited.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from bus.messages.usage import FilesystemUsage, InterfaceUsage, NetworkUsage, NodeUsage, PodUsage
from services.report.pod_rows import one_line
from shared.model.objects import Object
from shared.model.quantity import NANO
from shared.podspec.resources import parse_resources, pod_requests

MAX_ROWS = 32  # conditions or resources
MAX_INTERFACES = 8  # the interfaces with most bytes
# Resources that come first, in the order of `kubectl describe node`.
_FIRST = ("cpu", "memory", "ephemeral-storage", "pods")
_CONDITION = {
    "type": "type",
    "status": "status",
    "reason": "reason",
    "message": "message",
    "since": "lastTransitionTime",
}
_ENDED = ("Succeeded", "Failed")

Row = dict[str, Any]
Requests = Mapping[str, int]  # resource -> 1e-9 of its unit


def conditions(node_status: Object, pressure: Iterable[Mapping[str, str]]) -> list[Row]:
    """Return the conditions of the Node in its order. `pressure`: those of podsync, shown where there is no Node."""
    found = node_status.get("conditions") or list(pressure)
    return [{key: one_line(each.get(name) or "") for key, name in _CONDITION.items()} for each in found[:MAX_ROWS]]


def counted_requests(pod: Object, status: Object) -> Requests:
    """Return what the pod requests, with one of `pods`; {} = it has ended."""
    if status.get("phase") in _ENDED:
        return {}
    return {"pods": NANO} | {name: amount.nanos for name, amount in pod_requests(pod).items()}


def resources(
    capacity: Mapping[str, str], allocatable: Mapping[str, str], requested: Iterable[Requests], usage: NodeUsage | None
) -> list[Row]:
    """Return a row for each resource of the node. `requested`: what each pod requests."""
    total: dict[str, int] = {}
    for one in requested:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    known, given = parse_resources(capacity), parse_resources(allocatable)
    names = sorted(known, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    used = {} if usage is None else _used(usage)
    return [
        {
            "name": one_line(name),
            "used": used.get(name),
            "requested": _amount(total.get(name, 0)),
            "allocatable": _amount(given[name].nanos) if name in given else None,
            "capacity": _amount(known[name].nanos),
        }
        for name in names[:MAX_ROWS]
    ]


def filesystems(usage: NodeUsage | None) -> list[Row]:
    """Return a row for each filesystem of the kubelet that is known."""
    if usage is None:
        return []
    containerfs = usage.containerfs if usage.containerfs_device not in ("", usage.imagefs_device) else None
    named = (("nodefs", usage.nodefs), ("imagefs", usage.imagefs), ("containerfs", containerfs))
    return [{"name": name} | _filesystem(found) for name, found in named if found is not None]


def pod_usage(pods: Iterable[PodUsage]) -> dict[str, list[float | None]]:
    """Return the usage of each pod by UID: cores, bytes of the working set, bytes of ephemeral storage."""
    found: dict[str, list[float | None]] = {}
    for pod in pods:
        nanocores = pod.cgroup.cpu_nanocores if pod.cgroup else None
        found[pod.uid] = [
            None if nanocores is None else round(nanocores / NANO, 3),
            pod.cgroup.memory_working_set if pod.cgroup else None,
            pod.ephemeral_storage.used if pod.ephemeral_storage else None,
        ]
    return found


class NetworkRates:
    """Computes the bytes per second of each interface of the node between two readings."""

    def __init__(self) -> None:
        self._before: NetworkUsage | None = None
        self._rates: dict[str, tuple[float, float]] = {}  # interface -> received, sent

    def take(self, network: NetworkUsage | None) -> None:
        """Take a newer reading. The same reading again changes nothing."""
        before, self._before = self._before, network
        if network is None or before is None or network.time <= before.time:
            if network != before:
                self._rates = {}
            return
        seconds, known = network.time - before.time, {one.name: one for one in before.interfaces}
        self._rates = {
            one.name: rate
            for one in network.interfaces
            # Otherwise the interface is new, or its counters began again.
            if one.name in known and min(rate := _rate(known[one.name], one, seconds)) >= 0
        }

    def busiest(self) -> dict[str, float]:
        """Return the series of the charts: the highest rate of any interface. A sum would count the bytes that pass a
        bridge and a network card twice."""
        if not self._rates:
            return {}
        received, sent = zip(*self._rates.values(), strict=True)
        return {"network.received": max(received), "network.sent": max(sent)}

    def rows(self) -> list[Row]:
        """Return a row for each of the interfaces with most bytes."""
        found = self._before.interfaces if self._before else ()
        most = sorted(found, key=lambda one: -(one.rx_bytes + one.tx_bytes))[:MAX_INTERFACES]
        return [_interface(one, *self._rates.get(one.name, (None, None))) for one in most]


def _rate(before: InterfaceUsage, after: InterfaceUsage, seconds: float) -> tuple[float, float]:
    return (after.rx_bytes - before.rx_bytes) / seconds, (after.tx_bytes - before.tx_bytes) / seconds


def _interface(found: InterfaceUsage, received: float | None, sent: float | None) -> Row:
    return {
        "name": one_line(found.name),
        "received": None if received is None else round(received),
        "sent": None if sent is None else round(sent),
        "errors": found.rx_errors + found.tx_errors,
        "dropped": found.rx_dropped + found.tx_dropped,
    }


def _filesystem(found: FilesystemUsage) -> Row:
    names = ("used", "available", "capacity", "inodes_used", "inodes")
    return {name: getattr(found, name) for name in names}


def _used(usage: NodeUsage) -> dict[str, float | None]:
    nanocores = usage.cgroup.cpu_nanocores
    return {
        "cpu": None if nanocores is None else round(nanocores / NANO, 3),
        "memory": usage.cgroup.memory_working_set,
        "ephemeral-storage": usage.nodefs.used if usage.nodefs else None,
    }


def _amount(nanos: int) -> float:
    return nanos / NANO if nanos % NANO else nanos // NANO
