"""The topology manager's policies choose among hints as node.md 4.12 says."""

import random
from itertools import combinations

import pytest

from services.podsync.core.placement.hint import ANY_NODE, Hint, Hints
from services.podsync.core.placement.merging import MAX_NODES, TopologyPolicy, merge, node_limit_error
from shared.model.machine_topology import MachineTopology, NumaNode
from tests.unit.examples import examples
from tests.unit.podsync.placement.merging_oracle import Distances, expected_merge

ASKING = [policy for policy in TopologyPolicy if policy is not TopologyPolicy.NONE]


def machine(*nodes: int, distances: Distances | None = None) -> MachineTopology:
    far = distances or {}
    return MachineTopology(nodes={node: NumaNode(id=node, distances=far.get(node, {})) for node in nodes})


def yes(*nodes: int) -> Hint:
    return Hint(frozenset(nodes), True)


def no(*nodes: int) -> Hint:
    return Hint(frozenset(nodes), False)


BEST_EFFORT, RESTRICTED, SINGLE = ASKING
ANY = Hint(None, True)
CPU_OR_GPU: list[Hints] = [{"cpu": (yes(0), yes(1), no(0, 1))}, {"example.com/gpu": (yes(1), no(0, 1))}]
APART: list[Hints] = [{"cpu": (yes(0), no(0, 1))}, {"example.com/gpu": (yes(1), no(0, 1))}]
WIDE: list[Hints] = [{"cpu": (yes(0, 1),)}, {"example.com/gpu": (yes(0, 1),)}]
TOO_MUCH: list[Hints] = [{"cpu": ()}, {"example.com/gpu": (yes(1), no(0, 1))}]
NO_NODE: list[Hints] = [{"cpu": (yes(0),)}, {"example.com/gpu": (yes(1),)}]


@pytest.mark.parametrize(
    ("policy", "providers", "hint", "admitted"),
    [
        pytest.param(BEST_EFFORT, [], yes(0, 1), True, id="without providers nothing is restricted"),
        pytest.param(RESTRICTED, [{}, {"cpu": None}], yes(0, 1), True, id="no preference is preferred"),
        pytest.param(SINGLE, [{}, {"cpu": None}], ANY, True, id="all nodes are no affinity on one node"),
        pytest.param(BEST_EFFORT, CPU_OR_GPU, yes(1), True, id="the common preferred node"),
        pytest.param(RESTRICTED, CPU_OR_GPU, yes(1), True, id="the common preferred node, restricted"),
        pytest.param(SINGLE, CPU_OR_GPU, yes(1), True, id="the common preferred node, single"),
        pytest.param(BEST_EFFORT, APART, no(0), True, id="apart: of two sets of one node the lower"),
        pytest.param(RESTRICTED, APART, no(0), False, id="apart is not restricted's"),
        pytest.param(SINGLE, APART, Hint(None, False), False, id="apart is not on a single node"),
        pytest.param(RESTRICTED, WIDE, yes(0, 1), True, id="both nodes are preferred by all"),
        pytest.param(SINGLE, WIDE, Hint(None, False), False, id="both nodes are not a single one"),
        pytest.param(BEST_EFFORT, TOO_MUCH, no(1), True, id="an impossible resource restricts no nodes"),
        pytest.param(RESTRICTED, TOO_MUCH, no(1), False, id="an impossible resource is not admitted"),
        pytest.param(BEST_EFFORT, NO_NODE, no(0, 1), True, id="nothing in common: all nodes"),
        pytest.param(RESTRICTED, NO_NODE, no(0, 1), False, id="nothing in common is not admitted"),
    ],
)
def test_a_policy_chooses_and_admits(
    policy: TopologyPolicy, providers: list[Hints], hint: Hint, admitted: bool
) -> None:
    assert merge(policy, machine(0, 1), providers) == (hint, admitted)


def test_the_policy_none_admits_what_no_node_could_serve() -> None:
    assert merge(TopologyPolicy.NONE, machine(0, 1), TOO_MUCH) == (Hint(None, False), True)


def test_without_a_preferred_hint_the_set_is_as_large_as_the_neediest_resource_needs() -> None:
    """Two nodes are needed for the GPUs: one node that both have in common would split them needlessly."""
    gpus = tuple(no(*nodes) for size in (2, 3) for nodes in combinations(range(3), size))
    providers: list[Hints] = [{"cpu": (no(0), no(0, 1), no(1, 2), no(0, 1, 2))}, {"example.com/gpu": gpus}]
    assert merge(TopologyPolicy.BEST_EFFORT, machine(0, 1, 2), providers) == (no(0, 1), True)


@pytest.mark.parametrize(("closest", "nodes"), [(False, (0, 1)), (True, (1, 2))])
def test_prefer_closest_numa_nodes_takes_the_nearer_of_two_sets_of_one_size(
    closest: bool, nodes: tuple[int, ...]
) -> None:
    distances = {
        node: {other: 10 if node == other else 12 if node + other == 3 else 32 for other in range(4)}
        for node in range(4)
    }
    pairs = tuple(yes(*pair) for pair in combinations(range(4), 2))
    found = merge(
        TopologyPolicy.RESTRICTED, machine(*range(4), distances=distances), [{"cpu": pairs}], prefer_closest=closest
    )
    assert found == (yes(*nodes), True)


def test_a_distance_that_the_firmware_does_not_name_is_that_of_any_other_node() -> None:
    pairs = tuple(yes(*pair) for pair in combinations(range(3), 2))
    distances = {1: {2: 12}, 2: {1: 12}}
    found = merge(
        TopologyPolicy.RESTRICTED, machine(0, 1, 2, distances=distances), [{"cpu": pairs}], prefer_closest=True
    )
    assert found == (yes(1, 2), True)


@pytest.mark.long
@pytest.mark.parametrize("policy", ASKING)
@pytest.mark.parametrize("closest", [False, True])
def test_random_hints_are_merged_as_if_every_combination_were_looked_at(policy: TopologyPolicy, closest: bool) -> None:
    for seed in range(examples(800)):
        draw = random.Random(seed)
        nodes = tuple(sorted(draw.sample(range(6), draw.randint(1, 4))))
        distances = {one: {other: draw.choice((10, 12, 21, 32)) for other in nodes} for one in nodes}
        providers = [draw_hints(draw, nodes) for _ in range(draw.randint(0, 3))]
        topology = machine(*nodes, distances=distances)
        found = merge(policy, topology, providers, prefer_closest=closest)
        assert found == expected_merge(policy.value, nodes, distances, providers, closest=closest), (seed, providers)


def draw_hints(draw: random.Random, nodes: tuple[int, ...]) -> Hints:
    sets = [frozenset(mask) for size in range(1, len(nodes) + 1) for mask in combinations(nodes, size)]
    hints: dict[str, tuple[Hint, ...] | None] = {}
    for resource in ("memory", "hugepages-2Mi")[: draw.choice((0, 1, 1, 2))]:
        chosen = draw.sample(sets, draw.randint(0, min(5, len(sets))))
        smallest = min((len(mask) for mask in chosen), default=0)
        listed = [Hint(mask, len(mask) == smallest and draw.random() < 0.8) for mask in chosen]
        listed += [ANY_NODE] * (draw.random() < 0.1) + [Hint(None, False)] * (draw.random() < 0.1)
        hints[resource] = None if draw.random() < 0.1 else tuple(listed)
    return hints


@pytest.mark.parametrize("policy", ASKING)
def test_twenty_resources_on_eight_nodes_are_merged(policy: TopologyPolicy) -> None:
    """Every combination would be 255 to the power of 20."""
    every = tuple(no(*mask) for size in range(1, 9) for mask in combinations(range(8), size))
    hint, admitted = merge(policy, machine(*range(8)), [{f"example.com/{number}": every} for number in range(20)])
    assert (hint, admitted) == ((Hint(None, False) if policy is SINGLE else no(0)), policy is BEST_EFFORT)


@pytest.mark.parametrize(
    ("policy", "nodes", "allowable", "error"),
    [
        (TopologyPolicy.RESTRICTED, 8, 8, ""),
        (TopologyPolicy.RESTRICTED, 9, 8, "unsupported on machines with more than 8 NUMA Nodes"),
        (TopologyPolicy.BEST_EFFORT, 9, 9, ""),
        (TopologyPolicy.NONE, 9, 8, ""),
        (TopologyPolicy.SINGLE_NUMA_NODE, MAX_NODES + 1, 64, "unsupported on machines with more than 16 NUMA Nodes"),
    ],
)
def test_more_nodes_than_allowed_are_an_error_of_every_policy_but_none(
    policy: TopologyPolicy, nodes: int, allowable: int, error: str
) -> None:
    assert node_limit_error(policy, machine(*range(nodes)), allowable) == error
