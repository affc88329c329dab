"""Has how much memory of each NUMA node is given out, as the memory manager's checkpoint shows it (node.md 4.11)."""

from collections.abc import Mapping

from msgspec import Struct, field


class MemoryTable(Struct, frozen=True, kw_only=True):
    """Has one kind of memory of one NUMA node, in bytes. `reserved`: given to containers."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


class NodeMemory(Struct, frozen=True, kw_only=True):
    """Has the memory of one NUMA node by kind. `cells`: the nodes, in ascending order, whose memory it is given out
    together with; the node alone while nothing is given out."""

    assignments: int = 0
    tables: Mapping[str, MemoryTable] = field(default_factory=dict)
    cells: tuple[int, ...] = ()


MachineMemory = Mapping[int, NodeMemory]  # by NUMA node
