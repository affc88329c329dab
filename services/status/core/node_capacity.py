"""Sets capacity and allocatable of the Node (node.md 1.6): podsync's amounts, also of this node's device plugins,
replace those that others wrote.

Resources that podsync does not compute are foreign: an administrator or another agent's device plugins set them.
"""

from collections.abc import Collection, Mapping

from bus.messages.podsync import NodeResources
from shared.model.fields import dictionary
from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec.resources import is_extended


def set_capacity(
    status: Object,
    resources: NodeResources,
    devices: Collection[str] = (),
    given: Mapping[str, Collection[str]] | None = None,
) -> None:
    """Set `capacity` and `allocatable` of the status. Foreign capacity stays.

    Foreign allocatable is set to the capacity where there is none yet, or where it still is one of the amounts in
    `given`, which this agent set; an amount that others set is never raised. `devices`, the resources that the device
    plugin checkpoint names, are 0 in both lists where no device plugin has registered them with this agent; until that
    is known they stay as they are, so that a restart of a process does not change them.
    """
    unregistered = devices if resources.devices_known else ()
    capacity = {**quantities(status, "capacity"), **dict.fromkeys(unregistered, "0"), **resources.capacity}
    before = quantities(status, "allocatable")
    kept = {name: amount for name, amount in before.items() if not is_extended(name)}
    foreign = {
        name: _foreign_allocatable(amount, before.get(name), (given or {}).get(name, ()))
        for name, amount in capacity.items()
        if name not in resources.capacity
    }
    status["capacity"] = capacity
    status["allocatable"] = {**kept, **foreign, **resources.allocatable}


def given_allocatable(
    before: Object,
    after: Object,
    resources: NodeResources,
    devices: Collection[str],
    given: Mapping[str, Collection[str]],
) -> dict[str, tuple[str, ...]]:
    """Return the foreign amounts that this agent sets in `after`, a status that `set_capacity` made of `before`.

    The earlier amount is included, because it is not known yet whether `after` will be written. `devices` are left out:
    another kubelet's 0 for unhealthy devices equals the 0 that this agent sets for them, and must never be raised.
    """
    had, capacity = quantities(before, "allocatable"), quantities(after, "capacity")
    return {
        name: tuple(dict.fromkeys((had.get(name, amount), amount)))
        for name, amount in quantities(after, "allocatable").items()
        if name in capacity
        and name not in resources.capacity
        and name not in devices
        and (name not in had or _is_one_of(had[name], given.get(name, ())))
    }


def reset_extended_resources(status: Object, resources: NodeResources) -> None:
    """Set the extended resources of a Node that is older than its machine to 0, without those that podsync computes
    (node.md 1.3, 4)."""
    for key in ("capacity", "allocatable"):
        amounts = quantities(status, key)
        old = {name: "0" for name in amounts if is_extended(name) and name not in resources.capacity}
        if old:
            status[key] = amounts | old


def amounts_of_reset(status: Object, resources: NodeResources) -> dict[str, tuple[str, ...]]:
    """Return the amounts that `reset_extended_resources` has set in `allocatable`, which an administrator may raise by
    the capacity."""
    names = [name for name in quantities(status, "allocatable") if is_extended(name)]
    return {name: ("0",) for name in names if name not in resources.capacity}


def without_vanished_hugepages(status: Object, resources: NodeResources) -> None:
    """Remove sizes of huge pages that the host no longer has (node.md 1.3, 5); they change only with a boot."""
    for key in ("capacity", "allocatable"):
        kept = {
            name: amount
            for name, amount in quantities(status, key).items()
            if not name.startswith("hugepages-") or name in resources.capacity
        }
        if key in status:
            status[key] = kept


def quantities(status: Object, key: str) -> dict[str, str]:
    """Return the resource list under `key`; empty when there is none."""
    return dict(dictionary(status.get(key)))


def _foreign_allocatable(capacity: str, before: str | None, given: Collection[str]) -> str:
    if before is None or _is_one_of(before, given):
        return capacity
    try:
        return capacity if parse_quantity(capacity) < parse_quantity(before) else before
    except QuantityError:  # the API server would have refused such a quantity
        return before


def _is_one_of(amount: str, given: Collection[str]) -> bool:
    """Return whether the amount equals one of the given ones as a quantity."""
    try:
        return any(parse_quantity(amount) == parse_quantity(other) for other in given)
    except QuantityError:
        return False
