"""A pod is placed beside those that end, and where it must be in the place of these, it waits until they have ended."""

import pytest

from services.podsync.core.admission.placed import Placed, place_beside
from services.podsync.core.placement.cpu_policy import CpuSettings
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings
from services.podsync.core.placement.pod_placement import PodPlacement
from tests.unit.podsync.placement.machines import GIB, a_container, a_machine, a_pod

# Two NUMA nodes of 4 CPUs and 16 GiB. CPU 0 and 1 GiB are reserved.
SETTINGS = PlacementSettings(
    cpu=CpuSettings(static=True, reserved_cpus=frozenset({0}), reserved_count=1),
    memory=MemorySettings(static=True, reserved={0: {"memory": GIB}}),
)
PLACER = NodePlacer(a_machine(2, 2, 8, 1), SETTINGS)


def placed(cpu: str, memory: str, *others: PodPlacement) -> PodPlacement:
    return PLACER.place(a_pod(a_container("c", cpu, memory)), others)


@pytest.mark.parametrize(
    ("cpu", "memory", "awaited"),
    [
        pytest.param("1", "2Gi", (), id="there is room beside it"),
        pytest.param("500m", "14Gi", ("old",), id="its memory is needed"),
        pytest.param("5", "18Gi", ("old", "older"), id="the CPUs of one and the memory of both are needed"),
    ],
)
def test_a_pod_waits_for_ending_ones_only_where_it_needs_what_they_have(
    cpu: str, memory: str, awaited: tuple[str, ...]
) -> None:
    old = placed("500m", "12Gi")
    older = placed("3", "12Gi", old)
    pod = a_pod(a_container("c", cpu, memory), uid="new")
    _, found = place_beside(pod, PLACER, Placed(leaving={"old": old, "older": older, "new": old}))
    assert found == awaited


def test_a_pod_that_does_not_fit_beside_the_staying_ones_is_refused() -> None:
    old = placed("1", "12Gi")
    staying = placed("3", "12Gi", old)
    with pytest.raises(PlacementError, match=r"Allocate failed due to not enough cpus available"):
        place_beside(
            a_pod(a_container("c", "5", "2Gi"), uid="new"), PLACER, Placed(staying={"s": staying}, leaving={"old": old})
        )
