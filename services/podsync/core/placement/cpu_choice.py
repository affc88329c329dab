"""Chooses which of the available CPUs a request gets, by their place in the machine (node.md 4.10, takeByTopology).

Knows nothing of pods and policies. A group of CPUs (NUMA node, socket, cache, core) is whole when all its online CPUs
are available. The Go kubelet compares with the average size of such groups instead, which gives the same on machines
whose groups are of one size; on others it takes parts of groups for whole ones.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from services.podsync.core.placement.hint import PlacementError
from shared.model.machine_topology import Cpu, CpuSet, MachineTopology

_Key = Callable[[Cpu], int]  # the id of the group that a CPU belongs to
_NONE: CpuSet = frozenset()


class NotEnoughCpusError(PlacementError):
    """Says that fewer CPUs are available than requested."""

    def __init__(self, requested: int, available: int) -> None:
        super().__init__(f"not enough cpus available to satisfy request: requested={requested}, available={available}")


def take_by_topology(
    topology: MachineTopology, available: CpuSet, count: int, *, spread: bool = False, by_uncore: bool = False
) -> CpuSet:
    """Return `count` of the available CPUs, packed: whole NUMA nodes and sockets, then whole cores, then single CPUs.

    At each level groups with fewer available CPUs go first, then lower ids. `spread`: take no whole cores, and single
    CPUs by socket and id. `by_uncore`: before cores take whole caches, or a part of one cache that serves all the rest.
    Raise NotEnoughCpusError.
    """
    available &= topology.all_cpus
    if count > len(available):
        raise NotEnoughCpusError(count, len(available))
    taken = _NONE
    for take in _steps(topology, spread, by_uncore):
        taken |= take(topology, available - taken, count - len(taken))
        if len(taken) >= count:
            break
    return taken


_Step = Callable[[MachineTopology, CpuSet, int], CpuSet]


def _steps(topology: MachineTopology, spread: bool, by_uncore: bool) -> Iterator[_Step]:
    """Yield what is tried in turn: each step takes CPUs of those still available, at most as many as still needed."""
    outer, inner = _outer_levels(topology)
    yield _take_whole_of(outer)
    yield _take_whole_of(outer, inner)
    if by_uncore:
        yield _take_uncore
    if not spread:
        yield _take_whole_of(outer, inner, _core)
    yield _take_spread if spread else _take_packed


def node_order(topology: MachineTopology, available: CpuSet) -> list[int]:
    """Return the NUMA nodes that have available CPUs, in the order in which they are taken."""
    outer, inner = _outer_levels(topology)
    return _group_order(topology, available, *((outer,) if outer is _numa_node else (outer, inner)))


def _outer_levels(topology: MachineTopology) -> tuple[_Key, _Key]:
    """Return what is the larger and what the smaller of NUMA node and socket on this machine, as keys of a CPU."""
    sockets = {cpu.socket for cpu in topology.cpus.values()}
    nodes = {cpu.numa_node for cpu in topology.cpus.values()}
    return (_numa_node, _socket) if len(sockets) >= len(nodes) else (_socket, _numa_node)


def _group_order(topology: MachineTopology, available: CpuSet, *levels: _Key) -> list[int]:
    """Return the ids of the groups of the last level that have available CPUs: by the group of the first level that
    they belong to, then of the second and so on, and in each level by available CPUs, then by id, ascending."""
    cpus = [topology.cpus[cpu] for cpu in available]
    counts = [Counter(level(cpu) for cpu in cpus) for level in levels]
    ranks: dict[int, list[tuple[int, int]]] = {}
    for cpu in cpus:
        rank = [(count[level(cpu)], level(cpu)) for level, count in zip(levels, counts, strict=True)]
        ranks[rank[-1][1]] = min(rank, ranks.get(rank[-1][1], rank))
    return sorted(ranks, key=ranks.__getitem__)


def _take_whole_of(*levels: _Key) -> _Step:
    def take(topology: MachineTopology, available: CpuSet, needed: int) -> CpuSet:
        groups = _groups(topology, levels[-1])
        return _take_whole((groups[group] for group in _group_order(topology, available, *levels)), available, needed)

    return take


def _take_whole(groups: Iterable[CpuSet], available: CpuSet, needed: int) -> CpuSet:
    taken = _NONE
    for group in groups:
        if group <= available and len(group) <= needed - len(taken):
            taken |= group
    return taken


def _take_uncore(topology: MachineTopology, available: CpuSet, needed: int) -> CpuSet:
    outer, inner = _outer_levels(topology)
    levels = (_numa_node,) if outer is _numa_node else (outer, inner)
    caches, order = _groups(topology, _uncore), _group_order(topology, available, *levels, _uncore)
    taken = _take_whole((caches[group] for group in order), available, needed)
    rest = needed - len(taken)
    parts = (_part_of_cache(topology, (available - taken) & caches[group], rest) for group in order if rest)
    return taken | next((part for part in parts if len(part) == rest), _NONE)


def _part_of_cache(topology: MachineTopology, available: CpuSet, needed: int) -> CpuSet:
    """Return the available CPUs of as many of a cache's cores as `needed` CPUs fill, lowest ids first; of an odd
    number without the last CPU of them where a core has several."""
    per_core = max(topology.cpus_per_core, 1)
    cores = sorted({topology.cpus[cpu].core for cpu in available})[: -(-needed // per_core)]
    chosen = sorted(cpu for cpu in available if topology.cpus[cpu].core in cores)
    if needed % 2 and per_core > 1 and len(chosen) > needed:
        chosen.pop()
    return frozenset(chosen)


def _take_packed(topology: MachineTopology, available: CpuSet, needed: int) -> CpuSet:
    rank = {
        core: place for place, core in enumerate(_group_order(topology, available, *_outer_levels(topology), _core))
    }
    return frozenset(sorted(available, key=lambda cpu: (rank[topology.cpus[cpu].core], cpu))[:needed])


def _take_spread(topology: MachineTopology, available: CpuSet, needed: int) -> CpuSet:
    outer, inner = _outer_levels(topology)
    levels = (outer, inner) if inner is _socket else (outer,)
    rank = {socket: place for place, socket in enumerate(_group_order(topology, available, *levels))}
    return frozenset(sorted(available, key=lambda cpu: (rank[topology.cpus[cpu].socket], cpu))[:needed])


def _groups(topology: MachineTopology, key: _Key) -> dict[int, CpuSet]:
    groups: dict[int, set[int]] = {}
    for cpu in topology.cpus.values():
        groups.setdefault(key(cpu), set()).add(cpu.id)
    return {group: frozenset(cpus) for group, cpus in groups.items()}


def _numa_node(cpu: Cpu) -> int:
    return cpu.numa_node


def _socket(cpu: Cpu) -> int:
    return cpu.socket


def _uncore(cpu: Cpu) -> int:
    return cpu.uncore_cache


def _core(cpu: Cpu) -> int:
    return cpu.core
