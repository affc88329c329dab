"""What the containers of a pod with resources of its own get, with feature gate PodLevelResourceManagers (KEP-5526)."""

from typing import Any

import pytest

from bus.messages.device_plugins import Device, DeviceResource
from services.podsync.core.placement.attempt import Boundary
from services.podsync.core.placement.cpu_policy import CpuOption, CpuSettings
from services.podsync.core.placement.device_policy import PluginDevices
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.merging import TopologyPolicy
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings, TopologyScope, TopologySettings
from services.podsync.core.placement.pod_division import divide_cpus, with_pools
from services.podsync.core.placement.pod_placement import (
    NOT_PLACED,
    ContainerPlacement,
    MemoryBlock,
    PodPlacement,
    container_nodes,
    needs_no_quota,
)
from shared.model.cpu_list import write_cpus
from shared.model.frozen_copy import replace
from shared.model.machine_topology import MachineTopology
from tests.unit.podsync.placement.machines import GIB, a_container, a_machine, a_pod

Json = dict[str, Any]
_TWO_NODES = a_machine(2, 2, 8, 1)  # CPUs 0-3 and 4-7, of which 0 is reserved
_SMT = a_machine(1, 1, 4, 2)  # the cores 0,4 and 1,5 and 2,6 and 3,7


def a_placer(
    scope: TopologyScope = TopologyScope.POD,
    policy: TopologyPolicy = TopologyPolicy.RESTRICTED,
    *options: CpuOption,
    topology: MachineTopology = _TWO_NODES,
    gate: bool = True,
) -> NodePlacer:
    settings = PlacementSettings(
        cpu=CpuSettings(static=True, options=frozenset(options), reserved_cpus=frozenset({0}), reserved_count=1),
        memory=MemorySettings(static=True, reserved={0: {"memory": GIB}}),
        topology=TopologySettings(policy=policy, scope=scope),
        pod_level=gate,
    )
    return NodePlacer(topology, settings)


def own(cpu: str, memory: str = "8Gi") -> Json:
    """Return resources of a pod, whose requests are its limits."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def cpus_of(placement: PodPlacement) -> dict[str, str]:
    """Return the CPUs of each container: its own, or in parentheses those that it shares with others of its pod."""
    return {
        name: write_cpus(given.cpus) if given.cpus else f"({write_cpus(given.pool)})"
        for name, given in placement.containers.items()
    }


def sizes_of(placement: PodPlacement) -> dict[str, int]:
    """Return the GiB that each container has alone."""
    return {
        name: sum(block.size for block in given.memory) // GIB
        for name, given in placement.containers.items()
        if given.memory
    }


def refusal(placer: NodePlacer, pod: Json) -> tuple[str, str]:
    with pytest.raises(PlacementError) as caught:
        placer.place(pod, ())
    return caught.value.reason, str(caught.value)


SIDECAR = {"restartPolicy": "Always"}
MAIN, HELPER, LOGGER = a_container("main", "2", "4Gi"), {"name": "helper"}, {"name": "logger"}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_pod(HELPER, LOGGER, resources=own("4")), {"helper": "(4-7)", "logger": "(4-7)"}),
        (a_pod(MAIN, HELPER, LOGGER, resources=own("4")), {"main": "4-5", "helper": "(6-7)", "logger": "(6-7)"}),
        (a_pod(MAIN, a_container("more", "1"), resources=own("3")), {"main": "1-2", "more": "3"}),
        (a_pod(MAIN, resources=own("4")), {"main": "4-5"}),
        (a_pod(MAIN, a_container("part", "1500m"), resources=own("4")), {"main": "4-5", "part": "(6-7)"}),
        (
            a_pod({**MAIN, "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}, resources=own("4")),
            {"main": "(4-7)"},
        ),
        (
            a_pod(MAIN, HELPER, init=(a_container("init", "3"),), resources=own("4")),
            {"main": "4-5", "helper": "(6-7)", "init": "4-6"},
        ),
        (
            a_pod(MAIN, HELPER, init=({"name": "init"}, a_container("side", "1", **SIDECAR)), resources=own("4")),
            {"side": "4", "main": "5-6", "helper": "(7)", "init": "(4-7)"},
        ),
        (
            a_pod(MAIN, init=(a_container("side", "1", **SIDECAR), {"name": "init"}), resources=own("4")),
            {"side": "4", "main": "5-6", "init": "(5-7)"},
        ),
        # The sidecar shares CPUs, and keeps off those of the init container that runs beside it.
        (
            a_pod(MAIN, HELPER, init=({"name": "side", **SIDECAR}, a_container("init", "3")), resources=own("4")),
            {"main": "4-5", "init": "4-6", "side": "(7)", "helper": "(6-7)"},
        ),
    ],
)
def test_with_scope_pod_a_guaranteed_container_has_a_part_alone_and_the_others_share_the_rest(
    pod: Json, expected: dict[str, str]
) -> None:
    placer = a_placer()
    placement = placer.place(pod, ())
    assert cpus_of(placement) == expected
    assert len(placement.cpus) == int(pod["spec"]["resources"]["requests"]["cpu"])
    assert not placer.shared_pool([placement]) & placement.cpus
    other = placer.place(a_pod(a_container("c", "3")), [placement])
    assert not other.containers["c"].cpus & placement.cpus


def test_an_init_container_takes_cpus_that_a_sidecar_beside_it_shares_last() -> None:
    pod = a_pod(a_container("main", "1"), init=({"name": "side", **SIDECAR}, a_container("init", "2")))
    counts = {"main": 1, "side": 0, "init": 2}

    def take(cpus: frozenset[int], count: int) -> frozenset[int]:
        """Take even CPUs first for an odd count, and odd ones for an even count."""
        return frozenset(sorted(cpus, key=lambda cpu: (cpu % 2 == count % 2, cpu))[:count])

    given = divide_cpus(pod, frozenset({4, 5, 6, 7}), lambda container: counts[container["name"]], take)
    assert cpus_of(PodPlacement(containers=given)) == {"main": "4", "side": "(5,7)", "init": "4,6"}


def test_the_memory_of_a_pod_is_on_its_numa_nodes_and_only_parts_of_guaranteed_containers_are_named() -> None:
    placer = a_placer()
    placement = placer.place(a_pod(MAIN, HELPER, resources=own("4", "8Gi")), ())
    assert placement.memory == (MemoryBlock(nodes=frozenset({1}), kind="memory", size=8 * GIB),)
    assert sizes_of(placement) == {"main": 4}
    assert [container_nodes(placement, name) for name in ("main", "helper", "debugger")] == [[1], [1], []]
    free = {node: memory.tables["memory"].free for node, memory in placer.memory.machine_memory([placement]).items()}
    assert free == {0: 15 * GIB, 1: 8 * GIB}
    second = placer.place(a_pod(HELPER, uid="v", resources=own("1", "9Gi")), [placement])
    assert {block.nodes for block in second.memory} == {frozenset({0})}


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (a_pod(MAIN, a_container("more", "2"), HELPER, resources=own("4")), ("CPUs", "helper")),
        (a_pod(a_container("main", "2", "8Gi"), HELPER, resources=own("4")), ("memory", "helper")),
        (a_pod(HELPER, init=(a_container("init", "4"),), resources=own("4")), None),
        (
            a_pod(HELPER, init=({"name": "side", **SIDECAR}, a_container("init", "4")), resources=own("4")),
            ("CPUs", "side"),
        ),
        (
            a_pod(init=(a_container("side", "4", **SIDECAR), {"name": "init"}), resources=own("4")),
            ("CPUs", "init"),
        ),
    ],
)
@pytest.mark.parametrize("policy", [policy for policy in TopologyPolicy if policy is not TopologyPolicy.NONE])
def test_a_pod_that_leaves_nothing_to_share_is_refused_whatever_the_policy(
    policy: TopologyPolicy, pod: Json, message: tuple[str, str] | None
) -> None:
    placer = a_placer(policy=policy)
    if message is None:
        placer.place(pod, ())
        return
    resource, container = message
    text = f"the containers with {resource} of their own leave none of the pod's {resource} for container {container}"
    assert refusal(placer, pod) == ("EmptyPodSharedPoolError", text)


@pytest.mark.parametrize("policy", TopologyPolicy)
def test_with_scope_container_each_guaranteed_container_is_placed_and_the_others_share_the_nodes_cpus(
    policy: TopologyPolicy,
) -> None:
    placer = a_placer(TopologyScope.CONTAINER, policy)
    placement = placer.place(a_pod(MAIN, HELPER, resources=own("4")), ())
    assert (cpus_of(placement), sizes_of(placement)) == ({"main": "1-2"}, {"main": 4})
    assert (placement.cpus, placement.memory) == (frozenset(), ())
    assert placer.place(a_pod(HELPER, resources=own("4")), ()) == NOT_PLACED
    without_alignment = a_placer(TopologyScope.POD, TopologyPolicy.NONE)
    assert cpus_of(without_alignment.place(a_pod(MAIN, HELPER, resources=own("4")), ())) == {"main": "1-2"}


def test_a_fraction_of_a_cpu_gives_the_pod_no_cpus_and_its_memory_all_the_same() -> None:
    placement = a_placer().place(a_pod(MAIN, HELPER, resources=own("3500m")), ())
    assert (cpus_of(placement), placement.cpus) == ({"main": "()", "helper": "()"}, frozenset())
    assert sizes_of(placement) == {"main": 4}
    assert sum(block.size for block in placement.memory) == 8 * GIB


@pytest.mark.parametrize("scope", TopologyScope)
@pytest.mark.parametrize("policy", TopologyPolicy)
def test_without_the_gate_and_for_a_pod_that_is_not_guaranteed_nothing_is_given(
    policy: TopologyPolicy, scope: TopologyScope
) -> None:
    pod = a_pod(MAIN, HELPER, resources=own("4"))
    assert a_placer(scope, policy, gate=False).place(pod, ()) == NOT_PLACED
    burstable = a_pod(MAIN, HELPER, resources={"requests": {"cpu": "2"}, "limits": {"cpu": "4"}})
    assert a_placer(scope, policy).place(burstable, ()) == NOT_PLACED


def test_whole_cores_are_demanded_of_the_pod_and_not_of_its_containers() -> None:
    options = (CpuOption.FULL_PCPUS_ONLY,)
    placer = a_placer(TopologyScope.POD, TopologyPolicy.RESTRICTED, *options, topology=_SMT)
    placement = placer.place(a_pod(a_container("main", "1"), HELPER, resources=own("4")), ())
    assert (write_cpus(placement.cpus), cpus_of(placement)) == ("1-2,5-6", {"main": "1", "helper": "(2,5-6)"})
    message = "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    assert refusal(placer, a_pod(HELPER, resources=own("3"))) == ("SMTAlignmentError", message)


def test_a_pod_that_no_numa_nodes_hold_is_refused_as_one_of_containers_is() -> None:
    placer = a_placer(policy=TopologyPolicy.SINGLE_NUMA_NODE)
    text = "Resources cannot be allocated with Topology locality"
    assert refusal(placer, a_pod(HELPER, resources=own("5"))) == ("TopologyAffinityError", text)
    reason, message = refusal(a_placer(policy=TopologyPolicy.BEST_EFFORT), a_pod(HELPER, resources=own("9")))
    assert reason == "UnexpectedAdmissionError"
    assert message == (
        "Allocate failed due to not enough cpus available to satisfy request: requested=6, available=4, "
        "which is unexpected"
    )


def test_devices_are_given_to_containers_beside_the_parts_of_the_pod() -> None:
    gpu = DeviceResource(
        resource="a.b/gpu", devices=(Device(id="g0", healthy=True, nodes=(1,)),), connected=True, since=0.0
    )
    main = {**HELPER, "resources": {"limits": {"a.b/gpu": "1"}, "requests": {"a.b/gpu": "1"}}}
    placement = a_placer().place(a_pod(main, LOGGER, resources=own("2")), (), PluginDevices(resources={"a.b/gpu": gpu}))
    assert cpus_of(placement) == {"helper": "(4-5)", "logger": "(4-5)"}
    assert [of.ids for of in placement.containers["helper"].devices] == [frozenset({"g0"})]


def test_the_steps_count_the_containers_with_a_part_alone_and_the_alignment_of_the_pod() -> None:
    attempt = a_placer(policy=TopologyPolicy.SINGLE_NUMA_NODE).attempt(a_pod(MAIN, HELPER, resources=own("4")), ())
    assert (attempt.cpu_requests, attempt.cpu_errors, attempt.memory_requests) == (1, 0, 1)
    assert [(one.scope, one.boundary) for one in attempt.alignments if one.boundary is Boundary.NUMA_NODE] == [
        ("pod", Boundary.NUMA_NODE)
    ]
    refused = a_placer().attempt(a_pod(MAIN, a_container("more", "2"), HELPER, resources=own("4")), ())
    assert (refused.cpu_errors, refused.topology_errors) == (1, 1)


def test_a_pod_keeps_its_quota_where_its_limit_is_not_that_of_its_cpus() -> None:
    pod = a_pod(MAIN, HELPER, resources=own("4"))
    as_a_whole, by_container = a_placer().place(pod, ()), a_placer(TopologyScope.CONTAINER).place(pod, ())
    assert needs_no_quota(pod, as_a_whole) and not needs_no_quota(pod, by_container)
    sharing = a_pod(HELPER, resources=own("4"))
    assert not needs_no_quota(sharing, a_placer().place(sharing, ()))


def test_a_checkpoint_of_a_go_kubelet_says_by_the_pod_who_shares() -> None:
    """Its entries of containers that share look like those of containers that have CPUs alone."""
    pod = a_pod(MAIN, HELPER, a_container("part", "500m"), resources=own("4"))
    placement = a_placer().place(pod, ())
    as_written = replace(
        placement,
        containers={
            name: ContainerPlacement(cpus=given.cpus or given.pool, memory=given.memory or placement.memory)
            for name, given in placement.containers.items()
        },
    )
    read = with_pools(pod, as_written)
    assert (cpus_of(read), read.cpus, read.memory) == (cpus_of(placement), placement.cpus, placement.memory)
    assert sizes_of(read) == sizes_of(placement) == {"main": 4, "part": 1}
    ordinary = PodPlacement(containers={"helper": ContainerPlacement(cpus=frozenset({1}))})
    assert with_pools(pod, ordinary) == ordinary
