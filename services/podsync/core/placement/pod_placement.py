"""Has what was given to the containers of one pod alone: CPUs, blocks of the memory of NUMA nodes, and devices.
It is saved with the verdict on the pod, with devices once before it, and does not change after it while the pod is
active.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from bus.messages.device_plugins import AllocatedDevices
from services.podsync.core.placement.hint import NodeSet
from shared.model.cpu_list import write_cpus
from shared.model.frozen_copy import replace
from shared.model.machine_topology import CpuSet
from shared.model.objects import Object
from shared.podspec.resources import has_pod_level_resources


class MemoryBlock(Struct, frozen=True, kw_only=True):
    """Has an amount of one kind of memory, in bytes, that these NUMA nodes hold together."""

    nodes: NodeSet
    kind: str  # memory, or hugepages-<size>
    size: int


class ContainerDevices(Struct, frozen=True, kw_only=True):
    """Has the devices of one resource that one container was given. They are its own as soon as they are saved; the
    container may start once the plugin has answered what it needs for them."""

    resource: str  # such as nvidia.com/gpu
    ids: frozenset[str]  # the plugin's names of the devices
    setup: AllocatedDevices | None = None  # the plugin's answer to Allocate; None = it has not answered yet


class ContainerPlacement(Struct, frozen=True, kw_only=True):
    """Has what one container was given. `cpus` empty: it runs on `pool`, which it shares with containers of its pod, or
    without one on the node's shared pool. `memory` empty: on the NUMA nodes of the pod's memory, or without one on all.
    `affinity`: the NUMA nodes that the topology manager chose for it; None = any."""

    cpus: CpuSet = frozenset()
    pool: CpuSet = frozenset()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[ContainerDevices, ...] = ()  # one for each resource that it requests, by name
    affinity: NodeSet | None = None


class PodPlacement(Struct, frozen=True, kw_only=True):
    """Has the placement of each container that was given something, by the container's name. `cpus` and `memory`: of a
    pod with resources of its own, what it was given as a whole; what its containers have are parts of it."""

    containers: Mapping[str, ContainerPlacement] = field(default_factory=dict)
    cpus: CpuSet = frozenset()
    memory: tuple[MemoryBlock, ...] = ()


NOT_PLACED = PodPlacement()


def container_cpus(placement: PodPlacement, container: str, shared: str) -> str:
    """Return the cpuset of a container as the kernel writes it: its own CPUs, else those that it shares; "" = all."""
    given = placement.containers.get(container, ContainerPlacement())
    return write_cpus(given.cpus or given.pool) or shared


def container_nodes(placement: PodPlacement, container: str) -> list[int]:
    """Return the NUMA nodes of a container's memory, in ascending order; none = all."""
    given = placement.containers.get(container)
    blocks = (given.memory or placement.memory) if given is not None else ()
    return sorted({node for block in blocks for node in block.nodes})


def cpus_of(placement: PodPlacement) -> CpuSet:
    """Return the CPUs that only containers of this pod may use."""
    return placement.cpus.union(*(given.cpus for given in placement.containers.values()))


def memory_of(placement: PodPlacement) -> tuple[MemoryBlock, ...]:
    """Return the memory that only containers of this pod may use: the pod's own, of which theirs is a part."""
    return placement.memory or tuple(block for given in placement.containers.values() for block in given.memory)


def has_own_cpus(placement: PodPlacement) -> bool:
    """Return whether a container of the pod has CPUs of its own."""
    return any(given.cpus for given in placement.containers.values())


def needs_no_quota(pod: Object, placement: PodPlacement) -> bool:
    """Return whether the cgroup of the pod has no quota of CPU time: a container has CPUs of its own. Where the pod has
    resources of its own, but no CPUs as a whole, other containers would exceed its limit then."""
    return has_own_cpus(placement) and (bool(placement.cpus) or not has_pod_level_resources(pod))


def has_devices_of(placement: PodPlacement, resource: str) -> bool:
    """Return whether a container of the pod has devices of the resource."""
    return any(of.resource == resource for given in placement.containers.values() for of in given.devices)


def unprepared_devices(placement: PodPlacement) -> list[tuple[str, ContainerDevices]]:
    """Return the devices for which their plugins have not answered yet, with the names of their containers."""
    containers = placement.containers.items()
    return [(name, of) for name, given in containers for of in given.devices if of.setup is None]


def with_setups(placement: PodPlacement, setups: Mapping[tuple[str, str], AllocatedDevices]) -> PodPlacement:
    """Return the placement with the answers of the plugins, by names of container and resource."""
    containers = {
        name: replace(
            given,
            devices=tuple(replace(of, setup=setups.get((name, of.resource), of.setup)) for of in given.devices),
        )
        for name, given in placement.containers.items()
    }
    return replace(placement, containers=containers)
