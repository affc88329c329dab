"""The memory manager's policy Static gives memory of NUMA nodes to Guaranteed pods (node.md 4.11)."""

from typing import Any

import pytest

from services.podsync.core.placement.hint import ANY_NODE, Hint, PlacementError
from services.podsync.core.placement.machine_memory import MemoryTable, NodeMemory
from services.podsync.core.placement.memory_accounting import MemorySettings, settings_error
from services.podsync.core.placement.memory_policy import MemoryPolicy
from services.podsync.core.placement.merging import NO_AFFINITY
from services.podsync.core.placement.pod_placement import NOT_PLACED, MemoryBlock, PodPlacement
from shared.model.machine_topology import MachineTopology
from tests.unit.podsync.placement.memory_machines import (
    PAGES,
    block,
    container_of,
    machine_of,
    placed,
    pod_of,
    static_policy,
)

Sets = list[tuple[int, ...]]
TEN_AND_TEN = machine_of(11, 11)
RESERVED = {0: 1, 1: 1}  # so that 10 are allocatable on each


def hints_of(policy: MemoryPolicy, memory: int | str, *others: PodPlacement, pages: int = 0) -> tuple[Sets, Sets]:
    """Return the sets of nodes that are preferred for a container, and the others."""
    app = container_of("app", memory, pages)
    hints = policy.hints(pod_of(app), app, others, NOT_PLACED)
    assert len({found for found in hints.values() if found is not None}) <= 1  # the same for each kind of memory
    sets = [(tuple(sorted(hint.nodes or ())), hint.preferred) for hint in hints.get("memory") or ()]
    return [nodes for nodes, preferred in sets if preferred], [nodes for nodes, preferred in sets if not preferred]


@pytest.mark.parametrize(
    ("memory", "others", "preferred", "possible"),
    [
        pytest.param(4, (), [(0,), (1,)], [(0, 1)], id="one node suffices, and is preferred"),
        pytest.param(10, (), [(0,), (1,)], [(0, 1)], id="all that a node has"),
        pytest.param(11, (), [(0, 1)], [], id="more than a node has"),
        pytest.param(21, (), [], [], id="more than the machine has"),
        pytest.param(6, (placed(a=block((0,), 4)),), [(0,), (1,)], [], id="a node in use joins no group"),
        pytest.param(7, (placed(a=block((0,), 4)),), [(1,)], [], id="what is free of one node is not enough"),
        pytest.param(
            7, (placed(a=block((0,), 4)), placed(a=block((1,), 4))), [], [], id="free on both nodes, but not as a group"
        ),
        pytest.param(3, (placed(a=block((0, 1), 12)),), [], [(0, 1)], id="nodes of a group serve only as that group"),
        pytest.param(9, (placed(a=block((0, 1), 12)),), [], [], id="more than is free of the group"),
        pytest.param(3, (placed(a=block((0, 1), 0)),), [], [(0, 1)], id="a block of 0 bytes keeps its group"),
    ],
)
def test_sets_of_nodes_that_can_serve_a_container_are_its_hints(
    memory: int, others: tuple[PodPlacement, ...], preferred: Sets, possible: Sets
) -> None:
    assert hints_of(static_policy(TEN_AND_TEN, RESERVED), memory, *others) == (preferred, possible)


def test_every_kind_of_memory_must_suffice_in_the_same_nodes() -> None:
    policy = static_policy(machine_of(10, 14, pages=(0, 4)))
    assert hints_of(policy, 8, pages=2) == ([(1,)], [(0, 1)])
    assert hints_of(policy, 12, pages=2) == ([(0, 1)], [])
    assert hints_of(policy, 8, pages=6) == ([], [])


def test_the_smallest_set_is_that_of_a_free_machine_so_a_larger_one_is_not_preferred_when_it_is_full() -> None:
    policy = static_policy(machine_of(10, 10, 10))
    assert hints_of(policy, 8, placed(a=block((0,), 9))) == ([(1,), (2,)], [(1, 2)])
    others = [placed(a=block((node,), 9)) for node in range(3)]
    assert hints_of(policy, 8, *others) == ([], [])


def test_the_hints_of_a_pod_are_those_of_its_largest_moment() -> None:
    """Init containers run one after the other, before the others; a sidecar beside all."""
    policy = static_policy(TEN_AND_TEN, RESERVED)
    sidecar = container_of("sidecar", 2, restartPolicy="Always")
    pod = pod_of(container_of("a", 4), container_of("b", 4), init=(container_of("first", 9), sidecar))
    assert policy.pod_hints(pod, ()) == {
        "memory": (Hint(frozenset({0}), True), Hint(frozenset({1}), True), Hint(frozenset({0, 1}), False))
    }
    larger = pod_of(container_of("a", 4), container_of("b", 5), init=(container_of("first", 9), sidecar))
    assert policy.pod_hints(larger, ()) == {"memory": (Hint(frozenset({0, 1}), True),)}


NOT_ALL_LIMITED = {"name": "app", "resources": {"limits": {"memory": "4"}, "requests": {"cpu": "1", "memory": "4"}}}


@pytest.mark.parametrize(
    ("policy", "pod"),
    [
        pytest.param(MemoryPolicy(TEN_AND_TEN, MemorySettings()), pod_of(container_of("app", 4)), id="policy None"),
        pytest.param(static_policy(TEN_AND_TEN), pod_of(NOT_ALL_LIMITED), id="a Burstable pod"),
        pytest.param(
            static_policy(TEN_AND_TEN),
            pod_of(container_of("app", 4), resources={"limits": {"cpu": "1", "memory": "9"}}),
            id="pod-level resources",
        ),
    ],
)
def test_memory_is_given_only_by_the_policy_static_to_guaranteed_pods(
    policy: MemoryPolicy, pod: dict[str, Any]
) -> None:
    app = pod["spec"]["containers"][0]
    assert policy.hints(pod, app, (), NOT_PLACED) == {}
    assert policy.pod_hints(pod, ()) == {}
    assert policy.allocate(pod, app, ANY_NODE, (), NOT_PLACED) == {}


@pytest.mark.parametrize(
    ("memory", "affinity", "others", "nodes"),
    [
        pytest.param(4, NO_AFFINITY, (), (0,), id="without affinity the lowest of the smallest sets"),
        pytest.param(11, NO_AFFINITY, (), (0, 1), id="without affinity as many as are needed"),
        pytest.param(4, NO_AFFINITY, (placed(a=block((0,), 9)),), (1,), id="without affinity where it is free"),
        pytest.param(4, Hint(None, True), (), (0,), id="any node, aligned"),
        pytest.param(4, Hint(frozenset({1}), True), (), (1,), id="the nodes of the hint"),
        pytest.param(4, Hint(frozenset({0, 1}), False), (), (0, 1), id="more nodes than are needed"),
        pytest.param(12, Hint(frozenset({1}), False), (), (0, 1), id="the hint extended"),
        pytest.param(12, Hint(frozenset({1}), True), (), (0, 1), id="the hint extended to a preferred one"),
        pytest.param(
            4, Hint(frozenset({0}), False), (placed(a=block((0, 1), 9)),), (0, 1), id="one node extended to its group"
        ),
    ],
)
def test_a_container_gets_memory_of_the_nodes_of_the_hint_or_of_more(
    memory: int, affinity: Hint, others: tuple[PodPlacement, ...], nodes: tuple[int, ...]
) -> None:
    app = container_of("app", memory)
    given = static_policy(TEN_AND_TEN, RESERVED).allocate(pod_of(app), app, affinity, others, NOT_PLACED)
    assert given == {"app": (block(nodes, memory),)}


NOTHING_FREE = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"


@pytest.mark.parametrize(
    ("memory", "affinity", "others", "message"),
    [
        pytest.param(21, NO_AFFINITY, (), NOTHING_FREE, id="more than the machine has"),
        pytest.param("1500m", NO_AFFINITY, (), "[memorymanager] failed to represent quantity as int64", id="fraction"),
        pytest.param(
            4,
            Hint(None, True),
            (placed(a=block((0, 1), 9)),),
            "[memorymanager] failed to find the default preferred hint",
            id="only a group is free, and a single node would do",
        ),
        pytest.param(
            9,
            Hint(frozenset({0}), True),
            (placed(a=block((0,), 4)),),
            "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
            id="a node in use cannot be extended",
        ),
        pytest.param(
            4,
            Hint(frozenset({0}), True),
            (placed(a=block((0, 1), 9)),),
            "[memorymanager] failed to find the extended preferred hint",
            id="the group of the node is not preferred",
        ),
        pytest.param(
            4,
            Hint(frozenset({0, 1}), False),
            (placed(a=block((0,), 4)),),
            "[memorymanager] preferred hint violates NUMA node allocation",
            id="one of both nodes is in use alone",
        ),
    ],
)
def test_memory_that_cannot_be_given_is_the_kubelets_error(
    memory: int | str, affinity: Hint, others: tuple[PodPlacement, ...], message: str
) -> None:
    app = container_of("app", memory)
    with pytest.raises(PlacementError) as raised:
        static_policy(TEN_AND_TEN, RESERVED).allocate(pod_of(app), app, affinity, others, NOT_PLACED)
    assert (str(raised.value), raised.value.reason) == (message, "UnexpectedAdmissionError")


def test_a_set_that_only_an_ended_init_container_makes_large_enough_is_a_hint_and_is_given() -> None:
    policy, init, app = static_policy(machine_of(10)), container_of("init", 6), container_of("app", 9)
    pod, own = pod_of(app, init=(init,)), placed(init=block((0,), 6))
    assert policy.hints(pod, app, (), own) == {"memory": (Hint(frozenset({0}), True),)}
    given = policy.allocate(pod, app, Hint(frozenset({0}), True), (), own)
    assert given == {"init": (block((0,), 0),), "app": (block((0,), 9),)}


@pytest.mark.parametrize(
    ("second", "nodes", "left"),
    [
        pytest.param(container_of("second", 5), (0,), (0, 4), id="the first block, then the second"),
        pytest.param(container_of("second", 5), (1,), (6, 5), id="blocks of other nodes stay"),
        pytest.param(container_of("second", 5, restartPolicy="Always"), (0,), (0, 5), id="a sidecar keeps its memory"),
    ],
)
def test_a_container_takes_over_the_blocks_of_ended_init_containers(
    second: dict[str, Any], nodes: tuple[int, ...], left: tuple[int, int]
) -> None:
    policy, app = static_policy(machine_of(40, 40)), container_of("app", 7)
    pod = pod_of(app, init=(container_of("first", 6), second))
    own = placed(first=block((0,), 6), second=block((0,), 5))
    given = policy.allocate(pod, app, Hint(frozenset(nodes), True), (), own)
    after = {name: given.get(name, own.containers[name].memory) for name in own.containers}
    assert [after[name] for name in ("first", "second")] == [(block((0,), size),) for size in left]
    assert given["app"] == (block(nodes, 7),)


def test_the_machine_state_is_that_of_the_reference() -> None:
    """The first values are those of node.md 4.14, the others are of a block that is larger than one node."""
    policy = static_policy(machine_of(2048), {0: 512})
    table = MemoryTable(total=2048, system_reserved=512, allocatable=1536, reserved=512, free=1024)
    assert policy.machine_memory([placed(a=block((0,), 512))]) == {
        0: NodeMemory(assignments=1, tables={"memory": table}, cells=(0,))
    }
    both = static_policy(machine_of(10, 14, pages=(0, 4)))
    assert both.machine_memory([placed(a=(block((0, 1), 2, PAGES), block((0, 1), 13)))]) == {
        0: NodeMemory(
            assignments=2, tables={"memory": MemoryTable(total=10, allocatable=10, reserved=10)}, cells=(0, 1)
        ),
        1: NodeMemory(
            assignments=2,
            tables={
                "memory": MemoryTable(total=14, allocatable=10, reserved=3, free=7),
                PAGES: MemoryTable(total=4, allocatable=4, reserved=2, free=2),
            },
            cells=(0, 1),
        ),
    }


def test_blocks_of_nodes_that_the_machine_no_longer_has_count_for_nothing() -> None:
    policy = static_policy(machine_of(10))
    gone = [placed(a=block((1,), 4)), placed(a=block((0, 1), 12)), placed(a=block((0,), 4, "hugepages-1Gi"))]
    assert policy.machine_memory(gone)[0].tables == policy.machine_memory(())[0].tables


def test_allocatable_memory_is_that_of_each_node_and_kind_whatever_is_given_out() -> None:
    policy = static_policy(machine_of(10, 14, 5, pages=(0, 4)), {0: 1, 2: 5})
    expected: tuple[MemoryBlock, ...] = (block((0,), 9), block((1,), 4, PAGES), block((1,), 10))
    assert policy.allocatable == expected
    assert MemoryPolicy(TEN_AND_TEN, MemorySettings()).allocatable == ()


GIB, MIB = 1 << 30, 1 << 20


def not_equal(total: str, kind: str, withheld: str) -> str:
    amounts = f'the total amount "{total}" of type "{kind}" is not equal to the value "{withheld}"'
    return f"{amounts} determined by Node Allocatable feature"


@pytest.mark.parametrize(
    ("reserved", "withheld", "error"),
    [
        ({0: {"memory": GIB}}, {"memory": GIB}, ""),
        ({0: {"memory": GIB}, 1: {"memory": GIB, PAGES: 2 * MIB}}, {"memory": 2 * GIB, PAGES: 2 * MIB}, ""),
        (
            {0: {"memory": GIB}},
            {"memory": GIB + 100 * MIB},
            not_equal("1Gi", "memory", "1124Mi"),
        ),
        (
            {0: {"memory": GIB, PAGES: 2 * MIB}},
            {"memory": GIB},
            not_equal("2Mi", PAGES, "0"),
        ),
        (
            {0: {"memory": GIB}, 2: {"memory": GIB}},
            {"memory": 2 * GIB},
            "the reserved memory configuration references a NUMA node 2 that does not exist on this machine",
        ),
        ({}, {"memory": 0}, "[memorymanager] you should specify the system reserved memory"),
        (
            {0: {"memory": 3 * GIB}},
            {"memory": 3 * GIB},
            f"reservedMemory reserves {3 * GIB} bytes of memory of NUMA node 0, which has {2 * GIB}",
        ),
    ],
)
def test_reserved_memory_is_what_is_withheld_from_pods_and_what_its_nodes_have(
    reserved: dict[int, dict[str, int]], withheld: dict[str, int], error: str
) -> None:
    machine: MachineTopology = machine_of(2 * GIB, 2 * GIB, pages=(0, 4 * MIB))
    assert settings_error(machine, MemorySettings(static=True, reserved=reserved), withheld) == error
    assert settings_error(machine, MemorySettings(reserved=reserved), withheld) == ""
