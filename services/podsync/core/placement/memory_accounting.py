"""Computes which memory of each NUMA node is given out, from what the pods' containers were given (node.md 4.11).

Nothing else is kept: assignments, groups and free memory follow from the blocks. Of which node of a group a block is
taken counts for nobody but a reader of the checkpoint, who compares the sums of the group.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from services.podsync.core.placement.machine_memory import MachineMemory, MemoryTable, NodeMemory
from services.podsync.core.placement.pod_placement import MemoryBlock, PodPlacement, memory_of
from shared.model.frozen_copy import replace
from shared.model.machine_topology import MachineTopology, NumaNode
from shared.model.quantity import Quantity

MEMORY = "memory"


class MemorySettings(Struct, frozen=True, kw_only=True):
    """Has the policy, and what is reserved for the system: bytes by NUMA node and kind."""

    static: bool = False
    reserved: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


def settings_error(topology: MachineTopology, settings: MemorySettings, withheld: Mapping[str, int]) -> str:
    """Return why the settings cannot be used on this machine, or "" when they can. `withheld`: bytes by kind that
    kubeReserved, systemReserved and the hard eviction threshold withhold from pods together."""
    if not settings.static:
        return ""
    totals = dict.fromkeys(withheld, 0)
    for node, kinds in sorted(settings.reserved.items()):
        if node not in topology.nodes:
            return (
                f"the reserved memory configuration references a NUMA node {node} that does not exist on this machine"
            )
        for kind, size in kinds.items():
            totals[kind] = totals.get(kind, 0) + size
    for kind, total in sorted(totals.items()):
        if total != withheld.get(kind, 0):
            texts = [str(Quantity.of_base(size, binary=True)) for size in (total, withheld.get(kind, 0))]
            return (
                f'the total amount "{texts[0]}" of type "{kind}" is not equal to the value "{texts[1]}" '
                "determined by Node Allocatable feature"
            )
    if not totals.get(MEMORY):
        return "[memorymanager] you should specify the system reserved memory"
    for node, kinds in sorted(settings.reserved.items()):
        for kind, size in sorted(kinds.items()):
            there = _usable(topology.nodes[node], kind)
            if size > there:
                return f"reservedMemory reserves {size} bytes of {kind} of NUMA node {node}, which has {there}"
    return ""


def machine_memory(
    topology: MachineTopology, settings: MemorySettings, placements: Iterable[PodPlacement]
) -> MachineMemory:
    """Return the memory of each node beside what these pods were given. Blocks of nodes or kinds of memory that the
    machine has no longer are left out."""
    blocks = [
        block for placement in placements for block in memory_of(placement) if block.nodes <= topology.nodes.keys()
    ]
    # Small sets first: should sets overlap, each block then finds its memory, and the larger group binds its nodes.
    blocks.sort(key=lambda block: (len(block.nodes), sorted(block.nodes)))
    tables = {node.id: _empty_tables(node, settings.reserved.get(node.id, {})) for node in topology.nodes.values()}
    assignments = dict.fromkeys(topology.nodes, 0)
    cells: dict[int, tuple[int, ...]] = {node: (node,) for node in topology.nodes}
    for block in blocks:
        order = tuple(sorted(block.nodes))
        _take(block, [tables[node] for node in order])
        for node in order:
            assignments[node] += 1
            cells[node] = order
    return {
        node: NodeMemory(assignments=assignments[node], tables=tables[node], cells=cells[node])
        for node in topology.nodes
    }


def allocatable_blocks(machine: MachineMemory) -> tuple[MemoryBlock, ...]:
    """Return the memory of each node that containers can get, whether or not it is given out."""
    return tuple(
        MemoryBlock(nodes=frozenset({node}), kind=kind, size=table.allocatable)
        for node, memory in machine.items()
        for kind, table in sorted(memory.tables.items())
        if table.allocatable
    )


def _empty_tables(node: NumaNode, reserved: Mapping[str, int]) -> dict[str, MemoryTable]:
    totals = {**node.huge_pages, MEMORY: node.memory}
    tables = {}
    for kind, total in totals.items():
        allocatable = max(_usable(node, kind) - reserved.get(kind, 0), 0)
        tables[kind] = MemoryTable(
            total=total, system_reserved=reserved.get(kind, 0), allocatable=allocatable, free=allocatable
        )
    return tables


def _usable(node: NumaNode, kind: str) -> int:
    """Return the bytes of this kind that are not huge pages of any size, or those of one size."""
    if kind == MEMORY:
        return max(node.memory - sum(node.huge_pages.values()), 0)
    return node.huge_pages.get(kind, 0)


def _take(block: MemoryBlock, group: Sequence[dict[str, MemoryTable]]) -> None:
    """Take the block's memory from the nodes of its group, one after the other."""
    missing = block.size
    for tables in group:
        if table := tables.get(block.kind):
            taken = min(missing, table.free)
            missing -= taken
            tables[block.kind] = replace(table, reserved=table.reserved + taken, free=table.free - taken)
