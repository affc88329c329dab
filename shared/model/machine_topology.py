"""Has the CPUs, NUMA nodes and caches of a machine, as the kernel shows them in /sys (node.md 4.20)."""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

CpuSet = frozenset[int]  # ids of logical CPUs


class Cpu(Struct, frozen=True, kw_only=True):
    """Has the place of one online logical CPU. `core`: the lowest id of the CPUs of its core."""

    id: int
    core: int
    socket: int
    numa_node: int
    uncore_cache: int  # id of its L3 cache


class NumaNode(Struct, frozen=True, kw_only=True):
    """Has the memory of one NUMA node in bytes. A node may have no CPUs. `distances`: to each node, by its id."""

    id: int
    memory: int = 0
    huge_pages: Mapping[str, int] = field(default_factory=dict)  # bytes by resource name, such as hugepages-2Mi
    distances: Mapping[int, int] = field(default_factory=dict)


class MachineTopology(Struct, frozen=True, kw_only=True, dict=True):
    """Has all online CPUs, by id in ascending order, and all NUMA nodes, by id in ascending order."""

    cpus: Mapping[int, Cpu] = field(default_factory=dict)
    nodes: Mapping[int, NumaNode] = field(default_factory=dict)

    @cached_property
    def all_cpus(self) -> CpuSet:
        """All online CPUs."""
        return frozenset(self.cpus)

    @cached_property
    def cpus_per_core(self) -> int:
        """How many CPUs a core has, as the Go kubelet counts it: CPUs divided by cores."""
        cores = len({cpu.core for cpu in self.cpus.values()})
        return len(self.cpus) // cores if cores else 0

    @cached_property
    def cpu_nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that have CPUs, by id."""
        return tuple(sorted({cpu.numa_node for cpu in self.cpus.values()}))

    @cached_property
    def cores(self) -> Mapping[int, CpuSet]:
        """The online CPUs of each core, by the core's id."""
        return {core: frozenset(cpu.id for cpu in self.cpus.values() if cpu.core == core) for core in self._core_ids}

    @cached_property
    def _core_ids(self) -> frozenset[int]:
        return frozenset(cpu.core for cpu in self.cpus.values())

    def whole_cores(self, cpus: CpuSet) -> CpuSet:
        """Return those of the CPUs whose core has no other online CPUs."""
        return frozenset(cpu for cpu in cpus if self.cores[self.cpus[cpu].core] <= cpus)

    def sockets_of_nodes(self, nodes: frozenset[int]) -> frozenset[int]:
        """Return the sockets on which these NUMA nodes have CPUs."""
        return frozenset(cpu.socket for cpu in self.cpus.values() if cpu.numa_node in nodes)

    def cpus_of_nodes(self, nodes: frozenset[int]) -> CpuSet:
        """Return the CPUs of these NUMA nodes."""
        return frozenset(cpu.id for cpu in self.cpus.values() if cpu.numa_node in nodes)
