"""Computes the node's capacity and allocatable (node.md 1.6). Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from bus.messages.device_plugins import DeviceResource
from bus.messages.podsync import NodeResources
from shared.model.eviction import threshold_amount
from shared.model.frozen_copy import replace
from shared.model.quantity import ZERO, Quantity
from shared.podspec.resources import HUGEPAGES, ResourceList, parse_resources, written

_THRESHOLDS = {"memory.available": "memory", "nodefs.available": "ephemeral-storage"}


class Machine(Struct, frozen=True, kw_only=True):
    """Has the machine as it was read when the process began. Sizes are bytes."""

    cpus: int
    memory: int
    storage: int  # of the filesystem of the root directory; 0 = not known
    hugepages: Mapping[int, int] = field(default_factory=dict)  # page size -> number of pages


class Reservations(Struct, frozen=True, kw_only=True):
    """Has what the configuration reserves."""

    max_pods: int
    pods_per_core: int = 0
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    storage_isolation: bool = True


def node_resources(machine: Machine, reserved: Reservations) -> NodeResources:
    """Return capacity and allocatable as the Node shows them."""
    capacity = _capacity(machine, reserved)
    allocatable: ResourceList = {}
    for name, amount in capacity.items():
        allocatable[name] = max(ZERO, amount - _reservation(name, amount, reserved))
    pages = sum((amount.base() for name, amount in capacity.items() if name.startswith(HUGEPAGES)), 0)
    allocatable["memory"] = max(ZERO, allocatable["memory"] - Quantity.of_base(pages))
    return NodeResources(capacity=written(capacity), allocatable=written(allocatable))


def device_amounts(resource: DeviceResource) -> tuple[int, int]:
    """Return how many devices of the resource the node has, and how many of them are healthy."""
    if resource.dropped:
        return 0, 0
    return len(resource.devices), sum(device.healthy for device in resource.devices)


def with_devices(
    resources: NodeResources, devices: Iterable[DeviceResource], vanished: Iterable[str] = ()
) -> NodeResources:
    """Return the resources with those of device plugins. The amounts of a resource without devices are 0, so that the
    Node still shows it (node.md 4.15), and so are those of the resources `vanished`, which the plugins once had."""
    amounts = dict.fromkeys(vanished, (0, 0)) | {each.resource: device_amounts(each) for each in devices}
    return replace(
        resources,
        capacity=resources.capacity | {name: str(every) for name, (every, _) in amounts.items()},
        allocatable=resources.allocatable | {name: str(healthy) for name, (_, healthy) in amounts.items()},
        devices_known=True,
    )


def _capacity(machine: Machine, reserved: Reservations) -> ResourceList:
    pods = reserved.max_pods
    if reserved.pods_per_core > 0:
        pods = min(machine.cpus * reserved.pods_per_core, pods)
    capacity = {
        "cpu": Quantity.of_base(machine.cpus),
        "memory": Quantity.of_base(machine.memory, binary=True),
        "pods": Quantity.of_base(pods),
    }
    if reserved.storage_isolation and machine.storage:
        capacity["ephemeral-storage"] = Quantity.of_base(machine.storage, binary=True)
    for size, count in machine.hugepages.items():
        capacity[f"{HUGEPAGES}{Quantity.of_base(size, binary=True)}"] = Quantity.of_base(size * count, binary=True)
    return capacity


def _reservation(name: str, capacity: Quantity, reserved: Reservations) -> Quantity:
    total = ZERO
    for reservation in (reserved.system_reserved, reserved.kube_reserved):
        total = total + parse_resources(reservation).get(name, ZERO)
    for signal, resource in _THRESHOLDS.items():
        threshold = reserved.eviction_hard.get(signal)
        if resource == name and threshold:
            total = total + Quantity.of_base(threshold_amount(threshold, capacity.base()))
    return total
