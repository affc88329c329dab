"""What /metrics counts of requests for CPUs and NUMA memory, once for each pod with a verdict (node.md 4.10-4.12)."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from services.podsync.adapters import timed_placer
from services.podsync.adapters.timed_placer import MAX_ATTEMPTS, TimedPlacer
from services.podsync.controllers import placement_metrics
from services.podsync.controllers.placement_metrics import PlacementMetrics
from services.podsync.core.placement.cpu_policy import CpuOption, CpuSettings
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.merging import TopologyPolicy
from services.podsync.core.placement.placing import PlacementSettings, TopologyScope, TopologySettings
from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from shared.metrics.family import Kind
from shared.metrics.registry import Registry
from shared.model.cpu_list import parse_cpus
from shared.model.machine_topology import MachineTopology
from tests.support.machines.numa import NumaMachine
from tests.unit.podsync.placement.machines import GIB, a_container, a_machine, a_pod

_TWO_NODES = a_machine(2, 2, 8, 1, caches=2)  # CPUs 0-3 and 4-7
_THREADS = NumaMachine(cores_per_cache=4).topology()  # CPUs 0-7, of a core 0 and 4
_SINGLE = TopologySettings(policy=TopologyPolicy.SINGLE_NUMA_NODE)
_SINGLE_BY_POD = TopologySettings(policy=TopologyPolicy.SINGLE_NUMA_NODE, scope=TopologyScope.POD)


def a_placer(
    topology: MachineTopology = _TWO_NODES,
    settings: TopologySettings | None = None,
    *options: CpuOption,
    static_memory: bool = False,
    pod_level: bool = False,
) -> TimedPlacer:
    cpu = CpuSettings(static=True, options=frozenset(options), reserved_cpus=frozenset({0}), reserved_count=1)
    memory = MemorySettings(static=static_memory, reserved={0: {"memory": GIB}})
    topology_settings = settings or TopologySettings()
    return TimedPlacer(
        topology, PlacementSettings(cpu=cpu, memory=memory, topology=topology_settings, pod_level=pod_level)
    )


def held(cpus: str) -> PodPlacement:
    return PodPlacement(containers={"c": ContainerPlacement(cpus=parse_cpus(cpus) or frozenset())})


def counted(placer: TimedPlacer, pod: dict[str, Any], others: Iterable[PodPlacement] = ()) -> dict[str, float]:
    """Place the pod, count it twice, and return the counters that are not 0, without what all of them begin with."""
    registry = Registry()
    metrics = PlacementMetrics(registry, placer)
    try:
        placer.place(pod, others)
    except PlacementError:
        pass
    metrics.count(pod["metadata"]["uid"])
    metrics.count(pod["metadata"]["uid"])
    shown = {}
    for family, series in registry.collect():
        if family.kind is Kind.COUNTER:
            for labels, values in series.items():
                name = family.name.removeprefix("kubelet_").removesuffix("_total")
                shown[" ".join((name, *labels))] = values[0]
    return {name: value for name, value in shown.items() if value}


_CPUS, _CPU_ERRORS = "cpu_manager_pinning_requests", "cpu_manager_pinning_errors"
_MEMORY, _MEMORY_ERRORS = "memory_manager_pinning_requests", "memory_manager_pinning_errors"
_PODS, _REFUSED = "topology_manager_admission_requests", "topology_manager_admission_errors"
_ALIGNED, _FAILED = "container_aligned_compute_resources_count", "container_aligned_compute_resources_failure_count"
_ONE_CACHE = f"{_ALIGNED} container uncore_cache"


@pytest.mark.parametrize(
    ("placer", "pod", "others", "expected"),
    [
        pytest.param(
            a_placer(static_memory=True),
            a_pod(a_container("c", "2"), a_container("d", "500m"), init=(a_container("i", "1"),)),
            (),
            {_PODS: 1, _CPUS: 2, _MEMORY: 3, _ONE_CACHE: 2},
            id="each container of a Guaranteed pod, and those with whole CPUs",
        ),
        pytest.param(
            a_placer(static_memory=True),
            a_pod({"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}),
            (),
            {_PODS: 1},
            id="a Burstable pod requests nothing for itself",
        ),
        pytest.param(
            a_placer(),
            a_pod(a_container("c", "3"), a_container("d", "5"), a_container("e", "1")),
            (),
            {_PODS: 1, _CPUS: 2, _CPU_ERRORS: 1, _ONE_CACHE: 1},
            id="containers up to the refused one, without an error of the topology manager's policy none",
        ),
        pytest.param(
            a_placer(settings=TopologySettings(policy=TopologyPolicy.BEST_EFFORT), static_memory=True),
            a_pod(a_container("c", "1", "4Ti")),
            (),
            {_PODS: 1, _REFUSED: 1, _CPUS: 1, _MEMORY: 1, _MEMORY_ERRORS: 1, _ONE_CACHE: 1},
            id="memory that the machine does not have",
        ),
        pytest.param(
            a_placer(settings=_SINGLE),
            a_pod(a_container("c", "2"), a_container("d", "500m")),
            (),
            {_PODS: 1, _CPUS: 1, _ONE_CACHE: 1, f"{_ALIGNED} container numa_node": 2},
            id="single-numa-node aligns each container",
        ),
        pytest.param(
            a_placer(settings=_SINGLE),
            a_pod(a_container("c", "1"), a_container("d", "5")),
            (),
            {
                _PODS: 1,
                _REFUSED: 1,
                _CPUS: 1,
                _ONE_CACHE: 1,
                f"{_ALIGNED} container numa_node": 1,
                f"{_FAILED} container numa_node": 1,
            },
            id="single-numa-node refuses the second container",
        ),
        pytest.param(
            a_placer(settings=_SINGLE_BY_POD),
            a_pod(a_container("c", "1"), a_container("d", "1")),
            (),
            {_PODS: 1, _CPUS: 2, _ONE_CACHE: 2, f"{_ALIGNED} pod numa_node": 1},
            id="with scope pod it aligns the pod",
        ),
        pytest.param(
            a_placer(settings=_SINGLE_BY_POD),
            a_pod(a_container("c", "3"), a_container("d", "2")),
            (),
            {_PODS: 1, _REFUSED: 1, f"{_FAILED} pod numa_node": 1},
            id="with scope pod it refuses the pod before a container gets anything",
        ),
        pytest.param(
            a_placer(settings=TopologySettings(policy=TopologyPolicy.RESTRICTED)),
            a_pod(a_container("c", "3")),
            (held("1-2"), held("4-5")),
            {_PODS: 1, _REFUSED: 1},
            id="restricted guarantees no boundary",
        ),
        pytest.param(
            a_placer(),
            a_pod(a_container("c", "4")),
            (held("4"),),
            {_PODS: 1, _CPUS: 1},
            id="CPUs of two caches keep no boundary",
        ),
        pytest.param(
            a_placer(_THREADS, None, CpuOption.FULL_PCPUS_ONLY),
            a_pod(a_container("c", "2")),
            (),
            {_PODS: 1, _CPUS: 1, _ONE_CACHE: 1, f"{_ALIGNED} container physical_cpu": 1},
            id="whole cores",
        ),
        pytest.param(
            a_placer(_THREADS, None, CpuOption.FULL_PCPUS_ONLY),
            a_pod(a_container("c", "3")),
            (),
            {_PODS: 1, _CPUS: 1, _CPU_ERRORS: 1, f"{_FAILED} container physical_cpu": 1},
            id="half a core is refused",
        ),
    ],
)
def test_a_pod_is_counted_once_up_to_where_it_was_refused(
    placer: TimedPlacer, pod: dict[str, Any], others: Iterable[PodPlacement], expected: dict[str, float]
) -> None:
    assert counted(placer, pod, others) == expected


_WHOLE = {"requests": {"cpu": "3", "memory": "8Gi"}, "limits": {"cpu": "3", "memory": "8Gi"}}
_SHARING: dict[str, Any] = {"name": "s", "resources": {}}
_GIVEN, _NOT_GIVEN = "resource_manager_allocations", "resource_manager_allocation_errors"
_HAS = "resource_manager_container_assignments"


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(
            a_pod(a_container("c", "1"), a_container("d", "500m")),
            {
                f"{_GIVEN} cpu node": 1,
                f"{_GIVEN} memory node": 2,
                f"{_HAS} cpu node_exclusive": 1,
                f"{_HAS} memory node_exclusive": 2,
            },
            id="a pod without resources of its own",
        ),
        pytest.param(
            a_pod(a_container("c", "1"), _SHARING, resources=_WHOLE),
            {
                f"{_GIVEN} cpu node": 1,
                f"{_GIVEN} memory node": 1,
                f"{_GIVEN} cpu pod": 1,
                f"{_GIVEN} memory pod": 1,
                f"{_HAS} cpu pod_exclusive": 1,
                f"{_HAS} memory pod_exclusive": 1,
                f"{_HAS} cpu pod_shared": 1,
                f"{_HAS} memory pod_shared": 1,
            },
            id="the pod as a whole, a part of it, and who shares the rest",
        ),
        pytest.param(
            a_pod(a_container("c", "3"), _SHARING, resources=_WHOLE), {f"{_NOT_GIVEN} cpu pod": 1}, id="no rest"
        ),
    ],
)
def test_with_pod_level_managers_it_is_counted_from_which_pool_containers_are_served(
    pod: dict[str, Any], expected: dict[str, float]
) -> None:
    def found(*, gate: bool) -> dict[str, float]:
        settings = TopologySettings(policy=TopologyPolicy.RESTRICTED, scope=TopologyScope.POD)
        shown = counted(a_placer(settings=settings, static_memory=True, pod_level=gate), pod)
        return {name: value for name, value in shown.items() if name.startswith("resource_manager")}

    assert found(gate=True) == expected
    assert found(gate=False) == {}


def test_cpus_that_the_node_has_not_are_an_error_of_its_pool() -> None:
    shown = counted(a_placer(pod_level=True), a_pod(a_container("c", "8")))
    assert shown[f"{_NOT_GIVEN} cpu node"] == 1


def test_the_time_of_a_placement_is_observed_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((5.0, 5.25))
    monkeypatch.setattr(timed_placer, "time", SimpleNamespace(monotonic=lambda: next(times)))
    registry, placer = Registry(), a_placer()
    metrics = PlacementMetrics(registry, placer)
    placer.place(a_pod(a_container("c", "1"), uid="u"), ())
    metrics.count("u")
    series = dict(registry.collect())[placement_metrics.DURATION]
    assert 250.0 in series[()]


def test_only_the_newest_attempts_are_kept() -> None:
    placer = a_placer()
    for number in range(MAX_ATTEMPTS + 1):
        placer.place(a_pod(a_container("c", "1"), uid=f"u{number}"), ())
    assert placer.take_attempt("u0") is None
    assert placer.take_attempt("u1") is not None
