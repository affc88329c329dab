"""Who gets CPUs of its own, where, and with which refusals: the static policy and its options (node.md 4.10)."""

import random
from itertools import combinations
from typing import Any

import pytest

from services.podsync.core.placement.cpu_policy import (
    CpuOption,
    CpuPolicy,
    CpuSettings,
    SmtAlignmentError,
    settings_error,
)
from services.podsync.core.placement.cpu_requests import reusable_cpus
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.pod_placement import NOT_PLACED, ContainerPlacement, PodPlacement
from shared.model.cpu_list import write_cpus
from shared.model.machine_topology import CpuSet, MachineTopology
from tests.unit.podsync.placement.machines import MACHINES, a_container, a_machine, a_pod
from tests.unit.podsync.placement.test_cpu_choice import cpus, draw_available

_SMT = a_machine(1, 1, 4, 2)
_TOO_FEW_CORES = (
    "SMT Alignment Error: not enough free physical CPUs: "
    "available physical CPUs = 4, requested CPUs = 6, CPUs per core = 2"
)
_TWO_SOCKETS = a_machine(2, 2, 6, 2)
_TWO_SOCKETS_OF_TWO = a_machine(2, 4, 8, 1)


def a_policy(topology: MachineTopology, *options: CpuOption, reserved: str = "0", **more: Any) -> CpuPolicy:
    named = cpus(reserved) if reserved else frozenset()
    settings = {"static": True, "reserved_cpus": named, "reserved_count": len(named), **more}
    return CpuPolicy(topology, CpuSettings(options=frozenset(options), **settings))


def given(**containers: str) -> PodPlacement:
    return PodPlacement(
        containers={name: ContainerPlacement(cpus=cpus(text)) for name, text in containers.items()},
    )


def allocate(policy: CpuPolicy, pod: dict[str, Any], *, taken: str = "", affinity: set[int] | None = None) -> CpuSet:
    """Return what the pod's first regular container gets on a machine where others have taken these CPUs."""
    free = policy.shared_pool([cpus(taken)] if taken else [])
    nodes = None if affinity is None else frozenset(affinity)
    return policy.allocate(pod, pod["spec"]["containers"][0], nodes, free, NOT_PLACED)


# Who is eligible


@pytest.mark.parametrize(("cpu", "expected"), [("1", 1), ("2", 2), ("2000m", 2), ("1500m", 0), ("100m", 0), ("3.0", 3)])
def test_whole_cpus_of_a_guaranteed_pod_are_its_own_and_parts_are_shared(cpu: str, expected: int) -> None:
    assert len(allocate(a_policy(_SMT), a_pod(a_container("c", cpu)))) == expected


@pytest.mark.parametrize(
    "pod",
    [
        a_pod({"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}),
        a_pod({"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}),
        a_pod({"name": "c"}),
        a_pod(a_container("c", "2"), a_container("b", "1") | {"resources": {}}),
        a_pod(a_container("c", "2"), resources={"limits": {"cpu": "2", "memory": "1Gi"}}),
    ],
    ids=["burstable", "no memory", "best effort", "one container without", "pod-level resources"],
)
def test_pods_that_are_not_guaranteed_or_have_pod_level_resources_share(pod: dict[str, Any]) -> None:
    policy = a_policy(_SMT)
    assert allocate(policy, pod) == frozenset()
    assert policy.hints(pod, pod["spec"]["containers"][0], policy.shared_pool([]), NOT_PLACED) == {}
    assert policy.pod_hints(pod, policy.shared_pool([])) == {}


def test_policy_none_gives_no_cpus_and_names_none_as_allocatable() -> None:
    policy, pod = CpuPolicy(_SMT, CpuSettings(reserved_count=2)), a_pod(a_container("c", "2"))
    assert allocate(policy, pod) == policy.allocatable == policy.reserved == frozenset()
    assert policy.shared_pool([]) == _SMT.all_cpus
    assert policy.hints(pod, pod["spec"]["containers"][0], _SMT.all_cpus, NOT_PLACED) == {}


# What is reserved


@pytest.mark.parametrize(
    ("options", "count", "expected"),
    [
        ((), 1, "0"),
        ((), 2, "0,4"),
        ((), 3, "0-1,4"),
        ((CpuOption.DISTRIBUTE_ACROSS_CORES,), 2, "0-1"),
        ((CpuOption.FULL_PCPUS_ONLY,), 1, "0"),
    ],
)
def test_without_a_list_the_lowest_cores_are_reserved(
    options: tuple[CpuOption, ...], count: int, expected: str
) -> None:
    settings = CpuSettings(static=True, options=frozenset(options), reserved_count=count)
    policy = CpuPolicy(_SMT, settings)
    assert policy.reserved == cpus(expected)
    assert policy.allocatable == _SMT.all_cpus - policy.reserved
    assert settings_error(_SMT, settings) == ""


def test_reserved_cpus_stay_in_the_shared_pool_unless_they_are_strictly_reserved() -> None:
    assert write_cpus(a_policy(_SMT, reserved="0,4").shared_pool([cpus("1,5")])) == "0,2-4,6-7"
    strict = a_policy(_SMT, CpuOption.STRICT_CPU_RESERVATION, reserved="0,4")
    assert write_cpus(strict.shared_pool([cpus("1,5"), cpus("2")])) == "3,6-7"


def test_where_all_shared_cpus_are_taken_containers_run_on_the_reserved_ones() -> None:
    strict = a_policy(_SMT, CpuOption.STRICT_CPU_RESERVATION, reserved="0,4")
    assert strict.cpus_to_share([cpus("1-3"), cpus("5-6")]) == cpus("7")
    assert strict.cpus_to_share([cpus("1-3"), cpus("5-7")]) == cpus("0,4")
    assert strict.shared_pool([cpus("1-3"), cpus("5-7")]) == frozenset()
    assert a_policy(_SMT, reserved="0,4").cpus_to_share([cpus("1-3")]) == cpus("0,4-7")


@pytest.mark.parametrize(
    ("topology", "settings", "error"),
    [
        (_SMT, {"reserved_cpus": cpus("0,8-9"), "reserved_count": 3}, "CPUs 8-9 are not online"),
        (_SMT, {"reserved_count": 9}, "(size of 0-7 did not equal 9)"),
        (_SMT, {"reserved_cpus": cpus("0-1"), "reserved_count": 3}, "(size of 0-1 did not equal 3)"),
        (
            a_machine(4, 2, 4, 2),
            {"reserved_count": 1, "options": frozenset({CpuOption.ALIGN_BY_SOCKET})},
            "more sockets than NUMA nodes",
        ),
    ],
)
def test_settings_that_the_machine_cannot_serve_are_named(
    topology: MachineTopology, settings: dict[str, Any], error: str
) -> None:
    assert error in settings_error(topology, CpuSettings(static=True, **settings))
    assert settings_error(topology, CpuSettings(**settings)) == ""


# What is refused


def test_a_request_larger_than_what_is_free_is_refused_with_both_numbers() -> None:
    with pytest.raises(PlacementError) as caught:
        allocate(a_policy(_SMT), a_pod(a_container("c", "6")), taken="1-2")
    assert str(caught.value) == "not enough cpus available to satisfy request: requested=6, available=5"
    assert caught.value.reason == "UnexpectedAdmissionError"


@pytest.mark.parametrize(
    ("cpu", "taken", "message"),
    [
        ("3", "", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
        (
            "6",
            "1,5",
            _TOO_FEW_CORES,
        ),
        # Half of core 1 is taken: its other half is no whole core.
        (
            "6",
            "1",
            _TOO_FEW_CORES,
        ),
    ],
)
def test_full_pcpus_only_refuses_what_whole_cores_cannot_serve(cpu: str, taken: str, message: str) -> None:
    with pytest.raises(SmtAlignmentError) as caught:
        allocate(a_policy(_SMT, CpuOption.FULL_PCPUS_ONLY), a_pod(a_container("c", cpu)), taken=taken)
    assert str(caught.value) == message
    assert caught.value.reason == "SMTAlignmentError"


def test_full_pcpus_only_counts_the_cores_of_reserved_cpus_as_taken() -> None:
    """CPU 0 is reserved, so CPU 4, the other thread of its core, belongs to nobody alone."""
    policy = a_policy(_SMT, CpuOption.FULL_PCPUS_ONLY)
    assert allocate(policy, a_pod(a_container("c", "6"))) == cpus("1-3,5-7")
    assert allocate(policy, a_pod(a_container("c", "2")), affinity={0}) == cpus("1,5")


# Init containers


def test_cpus_of_init_containers_are_used_again_and_those_of_sidecars_are_not() -> None:
    init = (a_container("i", "4"), a_container("s", "1", restartPolicy="Always"), a_container("j", "3"))
    pod = a_pod(a_container("c", "2"), a_container("d", "1"), init=init)
    assert reusable_cpus(pod, NOT_PLACED) == frozenset()
    assert reusable_cpus(pod, given(i="1-4")) == cpus("1-4")
    assert reusable_cpus(pod, given(i="1-4", s="1")) == cpus("2-4")
    assert reusable_cpus(pod, given(i="1-4", s="1", j="2-4")) == cpus("2-4")
    assert reusable_cpus(pod, given(i="1-4", s="1", j="2-4", c="2-3")) == cpus("4")
    assert reusable_cpus(pod, given(i="1-4", s="1", j="2-4", c="2-3", d="4")) == frozenset()


@pytest.mark.parametrize("options", [(), (CpuOption.FULL_PCPUS_ONLY,)], ids=str)
def test_a_pod_whose_init_container_has_all_cpus_fits(options: tuple[CpuOption, ...]) -> None:
    policy = a_policy(_SMT, *options, reserved="0,4")
    pod = a_pod(a_container("c", "4"), a_container("d", "2"), init=(a_container("i", "6"),))
    free, own = policy.shared_pool([]), NOT_PLACED
    for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
        chosen = policy.allocate(pod, container, None, free, own)
        own = PodPlacement(containers={**own.containers, container["name"]: ContainerPlacement(cpus=chosen)})
    by_name = {name: placement.cpus for name, placement in own.containers.items()}
    assert by_name["i"] == by_name["c"] | by_name["d"] == cpus("1-3,5-7")
    assert not by_name["c"] & by_name["d"]


@pytest.mark.parametrize(
    ("init", "regular", "expected"),
    [
        ((), ("2", "1"), 3),
        ((("4", False),), ("2", "1"), 4),
        ((("1", True), ("4", False)), ("2",), 5),
        ((("4", False), ("1", True)), ("2",), 4),
        ((("1", True), ("2", True)), ("1500m", "2"), 5),
    ],
)
def test_hints_for_a_pod_are_those_of_the_most_cpus_that_it_has_at_one_time(
    init: tuple[tuple[str, bool], ...], regular: tuple[str, ...], expected: int
) -> None:
    more = {True: {"restartPolicy": "Always"}, False: {}}
    pod = a_pod(
        *(a_container(f"c{place}", cpu) for place, cpu in enumerate(regular)),
        init=tuple(a_container(f"i{place}", cpu, **more[sidecar]) for place, (cpu, sidecar) in enumerate(init)),
    )
    topology = a_machine(1, 2, 10, 1)  # five CPUs in each node
    policy = a_policy(topology)
    for available in range(1, 8):  # CPU 0 of them is reserved
        feasible = policy.pod_hints(pod, frozenset(range(available)))["cpu"]
        assert bool(feasible) == (available - 1 >= expected), available


# NUMA nodes


@pytest.mark.long
def test_hints_name_every_set_of_nodes_that_has_the_cpus_and_prefer_the_smallest(subtests: pytest.Subtests) -> None:
    for name in MACHINES:
        with subtests.test(name):
            topology, chance = MACHINES[name], random.Random(name)
            policy = a_policy(topology)
            nodes = sorted({cpu.numa_node for cpu in topology.cpus.values()})
            sets = [frozenset(some) for size in range(1, len(nodes) + 1) for some in combinations(nodes, size)]
            for _ in range(25):
                free = draw_available(topology, chance) | {0}
                used = frozenset(chance.sample(sorted(free - {0}), min(chance.choice((0, 0, 1, 2)), len(free) - 1)))
                count = chance.randint(1, len(topology.cpus))
                pod = a_pod(a_container("c", str(count)), init=(a_container("i", "1"),))
                own = PodPlacement(containers={"i": ContainerPlacement(cpus=used)})
                hints = policy.hints(pod, pod["spec"]["containers"][0], free, own)["cpu"]
                assert hints is not None
                usable = free - {0}  # 0 is reserved; what the init container left is in there
                possible = {
                    some
                    for some in sets
                    if all(topology.cpus[cpu].numa_node in some for cpu in used)
                    and sum(topology.cpus[cpu].numa_node in some for cpu in usable) >= count
                }
                assert [hint.nodes for hint in hints] == [some for some in sets if some in possible]
                of_all = {some: sum(cpu.numa_node in some for cpu in topology.cpus.values()) for some in sets}
                smallest = min((len(some) for some in sets if of_all[some] >= count), default=len(nodes))
                assert all(hint.preferred == (len(hint.nodes or ()) == smallest) for hint in hints)


def test_cpus_of_the_chosen_nodes_go_first_and_the_rest_comes_from_others() -> None:
    policy = a_policy(_TWO_SOCKETS)
    assert allocate(policy, a_pod(a_container("c", "4")), affinity={1}) == cpus("3-4,9-10")
    assert allocate(policy, a_pod(a_container("c", "4"))) == cpus("1-2,7-8")
    assert allocate(policy, a_pod(a_container("c", "7")), affinity={1}) == cpus("3-6,9-11")


def test_align_by_socket_takes_from_the_sockets_of_the_chosen_nodes() -> None:
    pod = a_pod(a_container("c", "3"))
    assert allocate(a_policy(_TWO_SOCKETS_OF_TWO), pod, taken="2", affinity={2}) == cpus("1,4-5")
    by_socket = a_policy(_TWO_SOCKETS_OF_TWO, CpuOption.ALIGN_BY_SOCKET)
    assert allocate(by_socket, pod, taken="2", affinity={2}) == cpus("4-6")


def test_align_by_socket_prefers_sets_of_nodes_on_as_few_sockets_as_needed() -> None:
    pod = a_pod(a_container("c", "2"))
    for options, preferred in (
        ((), [{0}, {1}, {2}, {3}]),
        ((CpuOption.ALIGN_BY_SOCKET,), [{0}, {1}, {2}, {3}, {0, 1}, {2, 3}]),
    ):
        policy = a_policy(_TWO_SOCKETS_OF_TWO, *options, reserved="", reserved_count=0)
        hints = policy.hints(pod, pod["spec"]["containers"][0], policy.shared_pool([]), NOT_PLACED)["cpu"]
        assert [set(hint.nodes or ()) for hint in hints or () if hint.preferred] == preferred


def test_distribution_across_nodes_takes_equal_parts_in_whole_cores() -> None:
    pod = a_pod(a_container("c", "8"))
    across = a_policy(_TWO_SOCKETS, CpuOption.DISTRIBUTE_ACROSS_NUMA, reserved="", reserved_count=0)
    assert allocate(across, pod) == cpus("0-1,3-4,6-7,9-10")
    whole = a_policy(_TWO_SOCKETS, CpuOption.DISTRIBUTE_ACROSS_NUMA, CpuOption.FULL_PCPUS_ONLY)
    assert allocate(whole, pod) == cpus("1-4,7-10")


def test_memory_only_nodes_are_in_no_hint() -> None:
    topology = a_machine(1, 2, 4, 1)
    with_memory = MachineTopology(cpus={**topology.cpus}, nodes={**topology.nodes, 7: topology.nodes[1]})
    policy, pod = a_policy(with_memory), a_pod(a_container("c", "1"))
    hints = policy.hints(pod, pod["spec"]["containers"][0], policy.shared_pool([]), NOT_PLACED)["cpu"]
    assert [hint.nodes for hint in hints or ()] == [frozenset({0}), frozenset({1}), frozenset({0, 1})]
