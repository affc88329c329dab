"""What /metrics shows of CPUs that containers have alone follows the placements of the pods."""

from services.podsync.controllers.cpu_metrics import EXCLUSIVE, PER_NODE, SHARED, CpuMetrics
from services.podsync.core.placement.cpu_policy import CpuSettings
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings
from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from shared.metrics.family import Family
from shared.metrics.registry import Registry
from tests.support.machines.numa import NumaMachine


def test_the_gauges_follow_the_placements() -> None:
    machine = NumaMachine(sockets=2, cores_per_cache=2, threads=1)  # CPUs 0-1 and 2-3
    reserved = CpuSettings(static=True, reserved_cpus=frozenset({0}), reserved_count=1)
    registry, placements = Registry(), dict[str, PodPlacement]()
    CpuMetrics(registry, NodePlacer(machine.topology(), PlacementSettings(cpu=reserved)), lambda: placements)

    def shown(family: Family) -> dict[tuple[str, ...], float]:
        series = dict(registry.collect())[family]
        return {labels: values[0] for labels, values in series.items()}

    assert (shown(SHARED), shown(EXCLUSIVE)) == ({(): 3000.0}, {(): 0.0})
    assert shown(PER_NODE) == {("0",): 0.0, ("1",): 0.0}
    placements["u1"] = PodPlacement(containers={"c": ContainerPlacement(cpus=frozenset({2, 3}))})
    assert (shown(SHARED), shown(EXCLUSIVE)) == ({(): 1000.0}, {(): 2.0})
    assert shown(PER_NODE) == {("0",): 0.0, ("1",): 2.0}
