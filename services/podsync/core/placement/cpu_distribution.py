"""Chooses CPUs of several NUMA nodes in equal parts (node.md 4.10, distribute-cpus-across-numa)."""

from collections.abc import Iterable, Mapping
from itertools import combinations, repeat
from math import floor, sqrt

from msgspec import Struct

from services.podsync.core.placement.cpu_choice import NotEnoughCpusError, node_order, take_by_topology
from shared.model.machine_topology import CpuSet, MachineTopology

_Free = Mapping[int, int]  # available CPUs by NUMA node


class _Share(Struct, frozen=True):
    """Has how many CPUs each NUMA node gives at least, how many with what is left over, and how unequal (standard
    deviation) the rest of all nodes is then."""

    part: int
    cpus: Mapping[int, int]
    imbalance: float


def take_across_numa(topology: MachineTopology, available: CpuSet, count: int, group: int) -> CpuSet:
    """Return `count` of the available CPUs in equal parts of as few NUMA nodes as can hold them, in whole groups of
    `group` CPUs; packed where no nodes can. What the parts leave over goes group by group to those of these nodes after
    which the machine is the most balanced. Raise NotEnoughCpusError.
    """
    available &= topology.all_cpus
    if count > len(available):
        raise NotEnoughCpusError(count, len(available))
    if count % group:
        return take_by_topology(topology, available, count)
    share = _choose_share(topology, available, count, group) if count else None
    if share is None:
        return take_by_topology(topology, available, count)
    taken: CpuSet = frozenset()
    for node, total in share.cpus.items():
        own = available & topology.cpus_of_nodes(frozenset({node}))
        for part in (share.part, *repeat(group, (total - share.part) // group)):
            taken |= take_by_topology(topology, own - taken, part)
    return taken


def _choose_share(topology: MachineTopology, available: CpuSet, count: int, group: int) -> _Share | None:
    order = node_order(topology, available)
    free = {node: len(available & topology.cpus_of_nodes(frozenset({node}))) for node in order}
    for size in _sizes(topology, len(order), count, group):
        # Of sets of nodes with the same numbers of available CPUs the first is as good as the others.
        distinct: dict[tuple[int, ...], tuple[int, ...]] = {}
        for nodes in combinations(order, size):
            distinct.setdefault(tuple(free[node] for node in nodes), nodes)
        shares = [_share_of(nodes, free, count, group) for nodes in distinct.values()]
        if fitting := [share for share in shares if share is not None]:
            return min(fitting, key=lambda share: share.imbalance)
    return None


def _sizes(topology: MachineTopology, available_nodes: int, count: int, group: int) -> range:
    """Return how many nodes are tried: at least as many as a machine with nodes of one size needs, and at most one for
    each group."""
    nodes = len({cpu.numa_node for cpu in topology.cpus.values()})
    per_node = _divide_up(_divide_up(len(topology.cpus), group), nodes)
    groups = count // group
    return range(_divide_up(groups, per_node), min(groups, available_nodes) + 1)


def _share_of(nodes: tuple[int, ...], free: _Free, count: int, group: int) -> _Share | None:
    """Return what each of these nodes gives; None when they cannot hold the request in equal parts."""
    if sum(free[node] // group * group for node in nodes) < count:
        return None
    part = count // len(nodes) // group * group
    if any(free[node] < part for node in nodes):
        return None
    rest = count - part * len(nodes)
    equal = dict.fromkeys(nodes, part)
    if not rest:
        return _Share(part, equal, _imbalance(free, equal))
    takers = [node for node in nodes if free[node] - part >= group]
    shares = [
        _Share(part, cpus, _imbalance(free, cpus))
        for size in range(len(takers), 0, -1)
        for subset in combinations(takers, size)
        if (cpus := _hand_out(equal, subset, free, rest, group)) is not None
    ]
    return min(shares, key=lambda share: share.imbalance, default=None)


def _hand_out(
    equal: Mapping[int, int], subset: Iterable[int], free: _Free, rest: int, group: int
) -> dict[int, int] | None:
    """Return the parts after the rest was handed out in turn, a group at a time; None when `subset` cannot hold it."""
    cpus = dict(equal)
    while rest > 0:
        before = rest
        for node in subset:
            if rest > 0 and free[node] - cpus[node] >= group:
                cpus[node] += group
                rest -= group
        if rest == before:
            return None
    return cpus


def _imbalance(free: _Free, cpus: Mapping[int, int]) -> float:
    left = [count - cpus.get(node, 0) for node, count in free.items()]
    mean = _round(sum(left) / len(left))
    return _round(sqrt(sum((count - mean) ** 2 for count in left) / len(left)))


def _round(number: float) -> float:
    """Round to three decimals, as the Go kubelet does before it compares."""
    return floor(number * 1000 + 0.5) / 1000


def _divide_up(amount: int, divisor: int) -> int:
    return -(-amount // divisor)
