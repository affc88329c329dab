"""CPUs in equal parts of several NUMA nodes: compared with all possible parts, and known answers (node.md 4.10)."""

import random
from collections import Counter
from itertools import combinations, product
from math import ceil, sqrt

import pytest

from services.podsync.core.placement.cpu_choice import NotEnoughCpusError
from services.podsync.core.placement.cpu_distribution import take_across_numa
from shared.model.machine_topology import MachineTopology
from tests.unit.podsync.placement.machines import a_machine
from tests.unit.podsync.placement.test_cpu_choice import cpus

_MACHINES = {
    "two nodes, SMT": a_machine(2, 2, 6, 2),
    "four nodes": a_machine(2, 4, 16, 1),
    "four nodes, SMT": a_machine(2, 4, 8, 2),
    "eight nodes": a_machine(2, 8, 16, 1),
}


@pytest.mark.parametrize(
    ("machine", "available", "count", "group", "expected"),
    [
        # One node holds it.
        (a_machine(2, 2, 6, 2), "0-11", 6, 1, "0-2,6-8"),
        # Two nodes hold it in equal parts, in whole cores.
        (a_machine(2, 2, 6, 2), "0-11", 8, 2, "0-1,3-4,6-7,9-10"),
        # The CPU that is left over goes to the node after which both have the same left.
        (a_machine(2, 2, 8, 1), "1-7", 5, 1, "1-2,4-6"),
        # Three nodes: two in each, not a whole node and a half.
        (a_machine(3, 3, 9, 1), "0-8", 4, 1, "0-1,3-4"),
        (a_machine(3, 3, 9, 1), "0-8", 7, 1, "0-2,3-4,6-7"),
        # Half cores are taken for what is left over of the parts, though one more core is whole.
        (a_machine(2, 2, 12, 2), "0-3,14-15,6-9,20-21", 7, 1, "0-2,14,6,8,20"),
        # No node has an equal part: packed.
        (a_machine(2, 2, 8, 1), "0-4", 5, 1, "0-4"),
        # A number that is no multiple of a core is packed.
        (a_machine(2, 2, 6, 2), "0-11", 7, 2, "0-2,3,6-8"),
        (a_machine(2, 2, 6, 2), "0-11", 0, 2, ""),
    ],
)
def test_known_answers(machine: MachineTopology, available: str, count: int, group: int, expected: str) -> None:
    taken = take_across_numa(machine, cpus(available), count, group)
    assert taken == (cpus(expected) if expected else frozenset())


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "group"),
    [(name, group) for name in _MACHINES for group in (1, 2) if not _MACHINES[name].cpus_per_core % group],
)
def test_as_few_nodes_as_possible_give_parts_after_which_the_machine_is_most_balanced(name: str, group: int) -> None:
    topology, chance = _MACHINES[name], random.Random(f"{name} {group}")
    compared = 0
    for _ in range(60):
        gone = frozenset(chance.sample(sorted(topology.all_cpus), chance.randint(0, len(topology.cpus) // 2)))
        available = topology.all_cpus - gone
        available = topology.whole_cores(available) if group > 1 else available
        if not available:
            continue
        count = chance.randint(1, max(len(available) // group, 1)) * group
        taken = take_across_numa(topology, available, count, group)
        assert len(taken) == count and taken <= available
        free = Counter(topology.cpus[cpu].numa_node for cpu in available)
        given = Counter(topology.cpus[cpu].numa_node for cpu in taken)
        if (best := _best_imbalance(topology, free, count, group)) is not None:
            nodes, imbalance = best
            assert all(part % group == 0 for part in given.values())
            assert len(given) == nodes, (free, count)
            assert _imbalance(free, given) == pytest.approx(imbalance, abs=0.001), (free, count)
            compared += 1
    assert compared > 10


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(NotEnoughCpusError, match="requested=5, available=4"):
        take_across_numa(a_machine(2, 2, 4, 1), cpus("0-3"), 5, 1)


def test_the_choice_among_sixteen_unlike_nodes_ends() -> None:
    topology = a_machine(4, 16, 64, 1)
    available = topology.all_cpus - {cpu for cpu in topology.all_cpus if cpu % 4 < cpu // 16}
    assert len(take_across_numa(topology, available, 30, 1)) == 30


def _best_imbalance(topology: MachineTopology, free: Counter[int], count: int, group: int) -> tuple[int, float] | None:
    """Return the number of nodes and the smallest deviation of what all nodes have left, over all parts that keep the
    rules: each node gives the equal part and some groups more, in turn over some of the nodes."""
    total = len({cpu.numa_node for cpu in topology.cpus.values()})
    groups_per_node = ceil(ceil(len(topology.cpus) / group) / total)
    fewest = ceil(count // group / groups_per_node)
    for size in range(fewest, min(count // group, len(free)) + 1):
        part = count // size // group * group
        found = [
            _imbalance(free, Counter(dict(zip(nodes, parts, strict=True))))
            for nodes in combinations(sorted(free), size)
            for parts in product(*(range(part, free[node] + 1, group) for node in nodes))
            if sum(parts) == count and _is_in_turn([more - part for more in parts], nodes, free, part, group)
        ]
        if found:
            return size, min(found)
    return None


def _is_in_turn(extras: list[int], nodes: tuple[int, ...], free: Counter[int], part: int, group: int) -> bool:
    """Return whether handing out groups in turn leads to these extras: of two nodes that get some, one is at most one
    group ahead, unless the other has no more."""
    takers = [(extra, free[node] - part - extra) for extra, node in zip(extras, nodes, strict=True) if extra]
    return all(more - extra <= group or left < group for more, _ in takers for extra, left in takers)


def _imbalance(free: Counter[int], given: Counter[int]) -> float:
    left = [free[node] - given[node] for node in free]
    mean = sum(left) / len(left)
    return sqrt(sum((count - mean) ** 2 for count in left) / len(left))
