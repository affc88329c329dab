"""Decides which NUMA nodes' memory a container gets: the memory manager's policies None and Static (node.md 4.11).

A node that memory is given out of belongs to one group of nodes, alone or with others, and serves only requests for
exactly this group: so groups never overlap, and what is free of a group is what its blocks leave.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from services.podsync.core.placement.cpu_requests import may_have_own
from services.podsync.core.placement.hint import Hint, Hints, NodeSet, PlacementError, bit_mask, node_sets
from services.podsync.core.placement.machine_memory import MachineMemory, MemoryTable
from services.podsync.core.placement.memory_accounting import (
    MEMORY,
    MemorySettings,
    allocatable_blocks,
    machine_memory,
)
from services.podsync.core.placement.pod_placement import MemoryBlock, PodPlacement
from shared.model.frozen_copy import replace
from shared.model.machine_topology import MachineTopology
from shared.model.objects import Object
from shared.model.quantity import NANO
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import (
    HUGEPAGES,
    ResourceList,
    has_pod_level_resources,
    is_sidecar,
    pod_requests,
    resource_list,
)

_Sizes = Mapping[str, int]  # bytes by kind of memory
Blocks = tuple[MemoryBlock, ...]


class MemoryPolicy:
    """Gives memory to containers. `others` is always what the other active pods were given, `own` what the earlier
    containers of the pod have got. `pod_level`: pods with resources of their own get some too."""

    def __init__(self, topology: MachineTopology, settings: MemorySettings, *, pod_level: bool = False) -> None:
        self._topology = topology
        self._settings = settings
        self._pod_level = pod_level

    @property
    def allocatable(self) -> Blocks:
        """The memory of each NUMA node that containers can get, whether or not it is given out."""
        return allocatable_blocks(self.machine_memory(())) if self._settings.static else ()

    def machine_memory(self, placements: Iterable[PodPlacement]) -> MachineMemory:
        """Return the memory of each NUMA node, with what these pods were given."""
        return machine_memory(self._topology, self._settings, placements)

    def hints(self, pod: Object, container: Object, others: Iterable[PodPlacement], own: PodPlacement) -> Hints:
        """Return the sets of NUMA nodes that have memory for the container. Where there are none, there is no hint at
        all, and `allocate` raises the error, as in the Go kubelet."""
        if not self.is_for(pod, container):
            return {}
        reusable = _reusable_blocks(pod, container, own)
        return self._named_hints(resource_list(container, "requests"), self.machine_memory((*others, own)), reusable)

    def pod_hints(self, pod: Object, others: Iterable[PodPlacement]) -> Hints:
        """Return the sets of NUMA nodes that have memory for all containers of the pod."""
        requests = self._requests_of(pod)
        return self._named_hints(requests, self.machine_memory(others), ()) if requests else {}

    def allocate(
        self, pod: Object, container: Object, affinity: Hint, others: Iterable[PodPlacement], own: PodPlacement
    ) -> dict[str, Blocks]:
        """Return the blocks of the container, by its name, and by theirs those of earlier init containers whose memory
        it takes over. `affinity`: what the topology manager chose. Raise PlacementError."""
        sizes = self.sizes(pod, container)
        if not sizes:
            return {}
        machine, reusable = self.machine_memory((*others, own)), _reusable_blocks(pod, container, own)
        nodes = _choose_nodes(affinity, sizes, machine, reusable)
        blocks = tuple(MemoryBlock(nodes=nodes, kind=kind, size=size) for kind, size in sorted(sizes.items()))
        return {**_blocks_left(pod, container, blocks, own), container["name"]: blocks}

    def allocate_pod(self, pod: Object, affinity: Hint, others: Iterable[PodPlacement]) -> Blocks:
        """Return the blocks of a pod with resources of its own, of which its containers then get parts. Raise
        PlacementError."""
        sizes = _sizes(self._requests_of(pod))
        if not sizes:
            return ()
        nodes = _choose_nodes(affinity, sizes, self.machine_memory(others), ())
        return tuple(MemoryBlock(nodes=nodes, kind=kind, size=size) for kind, size in sorted(sizes.items()))

    def sizes(self, pod: Object, container: Object) -> dict[str, int]:
        """Return the bytes of each kind of memory that the container is to get alone. Raise PlacementError."""
        return _sizes(resource_list(container, "requests")) if self.is_for(pod, container) else {}

    def is_for(self, pod: Object, container: Object) -> bool:
        """Return whether the container gets memory of NUMA nodes alone."""
        return self._settings.static and may_have_own(pod, container, pod_level=self._pod_level)

    def _requests_of(self, pod: Object) -> ResourceList:
        """Return what the pod requests as a whole, {} where it gets no memory of NUMA nodes alone."""
        if not self._settings.static or qos_class(pod) is not QosClass.GUARANTEED:
            return {}
        return {} if has_pod_level_resources(pod) and not self._pod_level else pod_requests(pod, overhead=False)

    def _named_hints(self, requests: ResourceList, machine: MachineMemory, reusable: Blocks) -> Hints:
        try:
            sizes = _sizes(requests)
        except PlacementError:
            return {}
        hints = tuple(_hints(sizes, machine, reusable)) if sizes else ()
        return dict.fromkeys(sizes, hints) if hints else {}


def _sizes(requests: ResourceList) -> dict[str, int]:
    """Return the bytes of each kind of memory among the requests. Raise PlacementError for fractions of a byte."""
    memory = {kind: amount for kind, amount in requests.items() if kind == MEMORY or kind.startswith(HUGEPAGES)}
    if any(amount.nanos % NANO for amount in memory.values()):
        raise _error("failed to represent quantity as int64")
    return {kind: amount.base() for kind, amount in memory.items() if amount}


def _hints(sizes: _Sizes, machine: MachineMemory, reusable: Blocks) -> list[Hint]:
    """Return the sets of nodes that can serve the request. As few nodes are preferred as would serve it on a free
    machine."""
    large = [nodes for nodes in node_sets(machine) if _is_large(machine, nodes, sizes)]
    smallest = min(map(len, large), default=0)
    return [
        Hint(nodes, len(nodes) == smallest)
        for nodes in large
        if _is_group(machine, nodes) and _is_free(machine, nodes, sizes, reusable)
    ]


def _choose_nodes(affinity: Hint, sizes: _Sizes, machine: MachineMemory, reusable: Blocks) -> NodeSet:
    """Return the nodes of the topology manager's hint, or more nodes with these where they do not suffice. A single
    node of a larger group never suffices; the Go kubelet does give out its memory, and refuses its own state then."""
    nodes = affinity.nodes
    if nodes is None:
        hints = _hints(sizes, machine, reusable)
        nothing = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
        return _best(hints, affinity, nothing, "failed to find the default preferred hint")
    is_group = _is_group(machine, nodes)
    if not _is_free(machine, nodes, sizes, reusable) or (len(nodes) == 1 and not is_group):
        hints = [hint for hint in _hints(sizes, machine, reusable) if hint.nodes is None or hint.nodes >= nodes]
        nothing = "failed to find NUMA nodes to extend the current topology hint"
        return _best(hints, affinity, nothing, "failed to find the extended preferred hint")
    if not is_group:
        raise _error("preferred hint violates NUMA node allocation")
    return nodes


def _best(hints: Sequence[Hint], affinity: Hint, nothing: str, not_preferred: str) -> NodeSet:
    """Return the nodes of the best hint. Raise PlacementError where there is none, and where only `affinity` is
    preferred."""
    found = [(not hint.preferred, len(hint.nodes), bit_mask(hint.nodes), hint.nodes) for hint in hints if hint.nodes]
    if not found:
        raise _error(nothing)
    worse, _, _, nodes = min(found, key=itemgetter(0, 1, 2))
    if worse and affinity.preferred:
        raise _error(not_preferred)
    return nodes


def _error(text: str) -> PlacementError:
    return PlacementError(f"[memorymanager] {text}")


def _is_group(machine: MachineMemory, nodes: NodeSet) -> bool:
    """Return whether no memory of these nodes is given out together with that of other nodes, or of fewer."""
    return all(not machine[node].assignments or nodes == set(machine[node].cells) for node in nodes)


def _is_free(machine: MachineMemory, nodes: NodeSet, sizes: _Sizes, reusable: Blocks) -> bool:
    for kind, size in sizes.items():
        held = sum(block.size for block in reusable if block.nodes == nodes and block.kind == kind)
        if held + sum(table.free for table in _tables(machine, nodes, kind)) < size:
            return False
    return True


def _is_large(machine: MachineMemory, nodes: NodeSet, sizes: _Sizes) -> bool:
    return all(
        sum(table.allocatable for table in _tables(machine, nodes, kind)) >= size for kind, size in sizes.items()
    )


def _tables(machine: MachineMemory, nodes: NodeSet, kind: str) -> list[MemoryTable]:
    return [machine[node].tables[kind] for node in nodes if kind in machine[node].tables]


def _ended_before(pod: Object, container: Object) -> list[str]:
    """Return the names of the init containers that have ended when this container starts."""
    ended: list[str] = []
    for init in (pod.get("spec") or {}).get("initContainers") or ():
        if init["name"] == container["name"]:
            break
        if not is_sidecar(init):
            ended.append(init["name"])
    return ended


def _reusable_blocks(pod: Object, container: Object, own: PodPlacement) -> Blocks:
    """Return the blocks of ended init containers, without what other containers have taken over of them."""
    ended = [own.containers[name] for name in _ended_before(pod, container) if name in own.containers]
    return tuple(block for placement in ended for block in placement.memory)


def _blocks_left(pod: Object, container: Object, blocks: Blocks, own: PodPlacement) -> dict[str, Blocks]:
    """Return the blocks of the ended init containers of which these blocks take over memory, less what they take. A
    block of which all is taken stays, with 0 bytes: the init container may start once more."""
    missing = {(block.nodes, block.kind): block.size for block in blocks}
    changed: dict[str, Blocks] = {}
    for name in _ended_before(pod, container):
        before = own.containers[name].memory if name in own.containers else ()
        left = []
        for block in before:
            taken = min(missing.get((block.nodes, block.kind), 0), block.size)
            if taken:
                missing[block.nodes, block.kind] -= taken
            left.append(replace(block, size=block.size - taken))
        if tuple(left) != before:
            changed[name] = tuple(left)
    return changed
