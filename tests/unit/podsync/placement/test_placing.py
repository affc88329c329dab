"""What the containers of a pod get together, and how a pod is refused: the topology manager (node.md 4.12)."""

from collections.abc import Iterable
from typing import Any

import pytest

from services.podsync.core.placement.cpu_policy import CpuOption, CpuSettings
from services.podsync.core.placement.hint import Hint, PlacementError
from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.merging import TopologyPolicy
from services.podsync.core.placement.placing import (
    NodePlacer,
    PlacementSettings,
    TopologyScope,
    TopologySettings,
    node_count_error,
)
from services.podsync.core.placement.pod_placement import NOT_PLACED, ContainerPlacement, PodPlacement
from services.podsync.core.placement.refusal import describe_refusal
from shared.model.cpu_list import parse_cpus, write_cpus
from shared.model.machine_topology import MachineTopology
from tests.unit.podsync.placement.machines import GIB, a_container, a_machine, a_pod

_TWO_NODES = a_machine(2, 2, 8, 1)  # CPUs 0-3 and 4-7
_NOWHERE = "Resources cannot be allocated with Topology locality"


def a_placer(
    topology: MachineTopology = _TWO_NODES,
    policy: TopologyPolicy = TopologyPolicy.NONE,
    scope: TopologyScope = TopologyScope.CONTAINER,
    *options: CpuOption,
    static_memory: bool = False,
) -> NodePlacer:
    cpu = CpuSettings(static=True, options=frozenset(options), reserved_cpus=frozenset({0}), reserved_count=1)
    memory = MemorySettings(static=static_memory, reserved={0: {"memory": GIB}})
    return NodePlacer(
        topology, PlacementSettings(cpu=cpu, memory=memory, topology=TopologySettings(policy=policy, scope=scope))
    )


def given(**containers: str) -> PodPlacement:
    """Return the placement of a pod whose containers have these CPUs."""
    placements = {name: ContainerPlacement(cpus=parse_cpus(text) or frozenset()) for name, text in containers.items()}
    return PodPlacement(containers=placements)


def cpus_of(placement: PodPlacement) -> dict[str, str]:
    return {name: write_cpus(given.cpus) for name, given in placement.containers.items()}


def nodes_of(placement: PodPlacement) -> dict[str, list[set[int]]]:
    return {name: [set(block.nodes) for block in given.memory] for name, given in placement.containers.items()}


def refused(placer: NodePlacer, pod: dict[str, Any], others: Iterable[PodPlacement] = ()) -> PlacementError:
    with pytest.raises(PlacementError) as caught:
        placer.place(pod, others)
    return caught.value


def refusal(placer: NodePlacer, pod: dict[str, Any], others: Iterable[PodPlacement] = ()) -> tuple[str, str]:
    """Return the reason and the message with which the pod is refused."""
    error = refused(placer, pod, others)
    return error.reason, str(error)


def test_without_static_policies_nothing_is_given_and_nobody_is_refused() -> None:
    for policy in TopologyPolicy:
        placer = NodePlacer(_TWO_NODES, PlacementSettings(topology=TopologySettings(policy=policy)))
        assert placer.place(a_pod(a_container("c", "64", "4Ti")), ()) == NOT_PLACED
        assert placer.shared_pool(()) == _TWO_NODES.all_cpus
        assert not placer.static_cpus and not placer.static_memory


def test_containers_get_their_cpus_in_the_order_in_which_they_start() -> None:
    init = (a_container("i", "3"), a_container("s", "1", restartPolicy="Always"))
    placer = a_placer()
    placement = placer.place(a_pod(a_container("c", "2"), a_container("d", "500m"), init=init), ())
    assert cpus_of(placement) == {"i": "1-3", "s": "1", "c": "2-3"}
    assert write_cpus(placer.shared_pool([placement])) == "0,4-7"
    other = placer.place(a_pod(a_container("c", "4")), [placement])
    assert cpus_of(other) == {"c": "4-7"}
    assert write_cpus(placer.shared_pool([placement, other])) == "0"


@pytest.mark.parametrize("policy", [*TopologyPolicy])
@pytest.mark.parametrize("scope", [*TopologyScope])
def test_pods_that_are_not_guaranteed_are_never_refused(policy: TopologyPolicy, scope: TopologyScope) -> None:
    placer = a_placer(_TWO_NODES, policy, scope, static_memory=True)
    pod = a_pod({"name": "c", "resources": {"requests": {"cpu": "64", "memory": "4Ti"}}})
    assert placer.place(pod, ()) == NOT_PLACED


@pytest.mark.parametrize(
    ("policy", "is_refused"),
    [
        (TopologyPolicy.NONE, False),
        (TopologyPolicy.BEST_EFFORT, False),
        (TopologyPolicy.RESTRICTED, True),
        (TopologyPolicy.SINGLE_NUMA_NODE, True),
    ],
)
@pytest.mark.parametrize("scope", [*TopologyScope])
def test_cpus_that_one_free_node_would_hold_and_no_used_one_does(
    scope: TopologyScope, policy: TopologyPolicy, is_refused: bool
) -> None:
    placer, others = a_placer(_TWO_NODES, policy, scope), [given(a="1-2", b="4-5")]
    pod = a_pod(a_container("c", "3"))
    if is_refused:
        assert refusal(placer, pod, others) == ("TopologyAffinityError", _NOWHERE)
    else:
        assert cpus_of(placer.place(pod, others)) == {"c": "3,6-7"}


def test_cpus_of_more_nodes_than_one_are_restricted_to_as_few_as_a_free_machine_needs() -> None:
    pod = a_pod(a_container("c", "5"))
    assert cpus_of(a_placer(_TWO_NODES, TopologyPolicy.RESTRICTED).place(pod, ())) == {"c": "1,4-7"}
    single = a_placer(_TWO_NODES, TopologyPolicy.SINGLE_NUMA_NODE)
    assert refusal(single, pod) == ("TopologyAffinityError", _NOWHERE)


def test_with_scope_pod_all_containers_are_on_the_same_nodes() -> None:
    pod = a_pod(a_container("c", "2"), a_container("d", "2"))
    by_container = a_placer(_TWO_NODES, TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.CONTAINER)
    assert cpus_of(by_container.place(pod, ())) == {"c": "1-2", "d": "4-5"}
    by_pod = a_placer(_TWO_NODES, TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.POD)
    assert cpus_of(by_pod.place(pod, ())) == {"c": "4-5", "d": "6-7"}
    assert refusal(by_pod, pod, [given(a="4")]) == ("TopologyAffinityError", _NOWHERE)


def test_cpus_and_memory_are_on_the_same_nodes() -> None:
    placer = a_placer(_TWO_NODES, TopologyPolicy.RESTRICTED, static_memory=True)
    first = placer.place(a_pod(a_container("c", "1", "10Gi")), ())
    assert (cpus_of(first), nodes_of(first)) == ({"c": "1"}, {"c": [{0}]})
    second = placer.place(a_pod(a_container("c", "1", "10Gi")), [first])
    assert (cpus_of(second), nodes_of(second)) == ({"c": "4"}, {"c": [{1}]})
    # CPUs are free on both nodes, and of memory 5 GiB on one and 6 GiB on the other.
    assert refusal(placer, a_pod(a_container("c", "1", "7Gi")), [first, second])[0] == "UnexpectedAdmissionError"
    third = placer.place(a_pod(a_container("c", "1", "6Gi")), [first, second])
    assert (cpus_of(third), nodes_of(third)) == ({"c": "5"}, {"c": [{1}]})
    assert {given.affinity for one in (first, second, third) for given in one.containers.values()} == {
        frozenset({0}),
        frozenset({1}),
    }


def test_memory_of_init_containers_goes_to_later_ones() -> None:
    placer = a_placer(_TWO_NODES, TopologyPolicy.SINGLE_NUMA_NODE, static_memory=True)
    pod = a_pod(a_container("c", "2", "8Gi"), init=(a_container("i", "2", "10Gi"),))
    placement = placer.place(pod, ())
    assert cpus_of(placement) == {"i": "1-2", "c": "1-2"}
    sizes = {name: [block.size // GIB for block in given.memory] for name, given in placement.containers.items()}
    assert sizes == {"i": [2], "c": [8]}


def test_a_refusal_names_what_failed_and_keeps_the_reason_of_an_alignment_to_cores() -> None:
    message = "not enough cpus available to satisfy request: requested=8, available=7"
    assert refusal(a_placer(), a_pod(a_container("c", "8"))) == (
        "UnexpectedAdmissionError",
        f"Allocate failed due to {message}, which is unexpected",
    )
    whole = a_placer(a_machine(1, 1, 4, 2), TopologyPolicy.NONE, TopologyScope.CONTAINER, CpuOption.FULL_PCPUS_ONLY)
    assert refusal(whole, a_pod(a_container("c", "3"))) == (
        "SMTAlignmentError",
        "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
    )


def test_a_pod_whose_last_container_does_not_fit_takes_nothing() -> None:
    placer, others = a_placer(), [given(a="1-4")]
    too_large = a_pod(a_container("c", "2"), a_container("d", "2"))
    assert refusal(placer, too_large, others)[0] == "UnexpectedAdmissionError"
    assert cpus_of(placer.place(a_pod(a_container("c", "3")), others)) == {"c": "5-7"}


def test_no_hints_are_made_on_a_machine_of_many_nodes_without_a_topology_policy() -> None:
    """2 to the power of 64 sets of nodes would never be counted."""
    placer = a_placer(a_machine(64, 64, 128, 1))
    assert cpus_of(placer.place(a_pod(a_container("c", "4")), ())) == {"c": "2-5"}


def test_saved_cpus_that_are_offline_now_are_given_to_nobody() -> None:
    topology = a_machine(1, 1, 4, 1, offline=frozenset({3}))
    placer, others = a_placer(topology), [given(a="2-3")]
    assert cpus_of(placer.place(a_pod(a_container("c", "1")), others)) == {"c": "1"}
    assert write_cpus(placer.shared_pool(others)) == "0-1"
    assert refusal(placer, a_pod(a_container("c", "2")), others)[0] == "UnexpectedAdmissionError"


@pytest.mark.parametrize(
    ("nodes", "policy", "static_memory", "max_nodes", "error"),
    [
        (8, TopologyPolicy.RESTRICTED, False, 8, ""),
        (16, TopologyPolicy.RESTRICTED, False, 8, "unsupported on machines with more than 8 NUMA Nodes"),
        (16, TopologyPolicy.RESTRICTED, False, 16, ""),
        (32, TopologyPolicy.NONE, False, 8, ""),
        (16, TopologyPolicy.NONE, True, 8, ""),
        (
            32,
            TopologyPolicy.NONE,
            True,
            8,
            "memoryManagerPolicy Static is unsupported on machines with more than 16 NUMA nodes",
        ),
    ],
)
def test_machines_with_too_many_nodes_are_named(
    nodes: int, policy: TopologyPolicy, static_memory: bool, max_nodes: int, error: str
) -> None:
    settings = PlacementSettings(
        memory=MemorySettings(static=static_memory),
        topology=TopologySettings(policy=policy, max_nodes=max_nodes),
    )
    assert node_count_error(a_machine(nodes, nodes, nodes, 1), settings) == error


@pytest.mark.parametrize(
    ("pod", "policy", "scope", "others", "expected"),
    [
        (
            a_pod(a_container("c", "3")),
            TopologyPolicy.RESTRICTED,
            TopologyScope.CONTAINER,
            [given(a="1-2", b="4-5")],
            "container c, cpu fits only on NUMA nodes 0-1 (on a free machine on fewer)",
        ),
        (
            a_pod(a_container("c", "2"), a_container("d", "3")),
            TopologyPolicy.SINGLE_NUMA_NODE,
            TopologyScope.POD,
            [],
            "the pod, cpu fits on NUMA nodes 0-1",
        ),
        (
            a_pod(a_container("c", "8")),
            TopologyPolicy.RESTRICTED,
            TopologyScope.CONTAINER,
            [],
            "container c, cpu fits on no NUMA nodes",
        ),
    ],
)
def test_a_refused_alignment_says_what_is_demanded_and_what_would_have_fitted(
    pod: dict[str, Any], policy: TopologyPolicy, scope: TopologyScope, others: list[PodPlacement], expected: str
) -> None:
    demands = {
        TopologyPolicy.RESTRICTED: "the same NUMA nodes for all resources, and as few as on a free machine",
        TopologyPolicy.SINGLE_NUMA_NODE: "one NUMA node for all resources",
    }
    text = refused(a_placer(_TWO_NODES, policy, scope), pod, others).detail
    assert text == f"topologyManagerPolicy {policy} demands {demands[policy]}; for {expected}"


def test_resources_that_fit_on_different_nodes_are_named_with_theirs() -> None:
    placer = a_placer(_TWO_NODES, TopologyPolicy.RESTRICTED, static_memory=True)
    full = placer.place(a_pod(a_container("c", "1", "14Gi")), [given(a="4-7")])  # leaves 1 GiB of node 0
    text = refused(placer, a_pod(a_container("c", "2", "2Gi")), [given(a="4-7"), full]).detail
    assert text.endswith("for container c, cpu fits on NUMA node 0 and memory fits on NUMA node 1")


def test_of_many_sets_of_nodes_only_some_are_named() -> None:
    pairs = [Hint(frozenset({2 * place, 2 * place + 1}), True) for place in range(6)]
    text = describe_refusal(TopologyPolicy.SINGLE_NUMA_NODE, "", [{"cpu": tuple(pairs)}])
    assert text.endswith("for the pod, cpu fits on NUMA nodes 0-1 or 2-3 or 4-5 or 6-7 or others")
