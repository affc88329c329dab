"""Finds by brute force which CPUs a request must get: written from node.md 4.10, over all subsets of the CPUs.

The packed order is read as a preference among all sets of the wanted size: as many whole groups of the first level as
possible, and of those the ones that come first; then the same with the next level and what is left; single CPUs last.
It holds on machines whose groups of one level are of one size.
"""

from collections.abc import Callable, Iterable
from itertools import combinations

from shared.model.machine_topology import CpuSet, MachineTopology

_Place = Callable[[int], int]


def best_cpus(topology: MachineTopology, available: CpuSet, count: int, *, spread: bool = False) -> CpuSet:
    """Return the best of all subsets of `count` available CPUs."""
    subsets = (frozenset(subset) for subset in combinations(sorted(available), count))
    return min(subsets, key=lambda subset: _badness(topology, available, subset, spread))


def _badness(topology: MachineTopology, available: CpuSet, subset: CpuSet, spread: bool) -> list[object]:
    cpus = topology.cpus
    node: _Place = lambda cpu: cpus[cpu].numa_node  # noqa: E731 - short names for the places of a CPU
    socket: _Place = lambda cpu: cpus[cpu].socket  # noqa: E731
    core: _Place = lambda cpu: cpus[cpu].core  # noqa: E731
    nodes_are_larger = len(set(map(socket, cpus))) >= len(set(map(node, cpus)))
    outer, inner = (node, socket) if nodes_are_larger else (socket, node)
    levels = [(outer,), (outer, inner)] + ([] if spread else [(outer, inner, core)])
    badness: list[object] = []
    free, rest = available, subset
    for level in levels:
        wholes = [group for group in _groups(topology, level[-1]) if group <= rest]
        badness += [-len(wholes), sorted(_rank(min(group), level, free) for group in wholes)]
        for group in wholes:
            free, rest = free - group, rest - group
    last = ((outer, inner) if inner is socket else (outer,)) if spread else (outer, inner, core)
    return [*badness, sorted((_rank(cpu, last, free), cpu) for cpu in rest)]


def _rank(cpu: int, levels: Iterable[_Place], free: CpuSet) -> list[tuple[int, int]]:
    """Return what orders groups: in each level those with fewer free CPUs first, then those with the lower id."""
    return [(sum(level(other) == level(cpu) for other in free), level(cpu)) for level in levels]


def _groups(topology: MachineTopology, place: _Place) -> list[CpuSet]:
    return [frozenset(cpu for cpu in topology.cpus if place(cpu) == group) for group in set(map(place, topology.cpus))]
