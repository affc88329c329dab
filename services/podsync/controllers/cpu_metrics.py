"""Shows which CPUs containers have alone, under the kubelet's names (node.md 9.1)."""

from collections.abc import Callable, Mapping

from services.podsync.core.placement.placing import NodePlacer
from services.podsync.core.placement.pod_placement import PodPlacement, cpus_of
from shared.metrics.family import gauge
from shared.metrics.registry import Registry

SHARED = gauge(
    "kubelet_cpu_manager_shared_pool_size_millicores",
    "Thousandths of CPUs that no container has alone, without the reserved ones.",
)
EXCLUSIVE = gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that containers have alone.")
PER_NODE = gauge(
    "kubelet_cpu_manager_allocation_per_numa", "CPUs that containers have alone, by NUMA node.", "numa_node"
)


class CpuMetrics:
    """Counts the CPUs with cpuManagerPolicy static. `placements` returns those of the pods that have one."""

    def __init__(
        self, metrics: Registry, placer: NodePlacer, placements: Callable[[], Mapping[str, PodPlacement]]
    ) -> None:
        self._placer, self._placements = placer, placements
        self._shared, self._exclusive = metrics.gauge(SHARED), metrics.gauge(EXCLUSIVE)
        self._per_node = metrics.gauge(PER_NODE)
        metrics.before_collecting(self._count)

    def _count(self) -> None:
        exclusive = frozenset[int]().union(*map(cpus_of, self._placements().values()))
        self._shared.set(1000 * len(self._placer.cpus.allocatable - exclusive))
        self._exclusive.set(len(exclusive))
        self._per_node.clear()
        for node, count in self._placer.cpus_per_node(exclusive).items():
            self._per_node.set(count, str(node))
