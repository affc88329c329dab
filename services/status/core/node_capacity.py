"""Capacity and allocatable of the Node (reference node.md 1.6): podsync's figures over what others wrote."""

from bus.messages.podsync import NodeResources
from shared.model.objects import Object


def set_capacity(status: Object, resources: NodeResources) -> None:
    """Start from what is there: resources that we do not know (device plugins of others, an administrator's) stay,
    and all of them may be had."""
    capacity = {**quantities(status, "capacity"), **resources.capacity}
    allocatable = {
        name: amount
        for name, amount in quantities(status, "allocatable").items()
        if name in capacity or not is_extended(name)
    }
    allocatable |= {name: amount for name, amount in capacity.items() if name not in resources.capacity}
    status["capacity"] = capacity
    status["allocatable"] = {**allocatable, **resources.allocatable}


def without_vanished_hugepages(status: Object, resources: NodeResources) -> None:
    """Sizes of huge pages that the host no longer has go (reference node.md 1.3, 5): they change with a boot only."""
    for key in ("capacity", "allocatable"):
        kept = {
            name: amount
            for name, amount in quantities(status, key).items()
            if not name.startswith("hugepages-") or name in resources.capacity
        }
        if kept or key in status:
            status[key] = kept


def is_extended(name: str) -> bool:
    """An extended resource: of a domain that is not Kubernetes' own."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def quantities(status: Object, key: str) -> dict[str, str]:
    """The resource list under `key`; empty when there is none."""
    found = status.get(key)
    return dict(found) if isinstance(found, dict) else {}
