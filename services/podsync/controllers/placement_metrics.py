"""Counts what became of the requests for CPUs and NUMA memory, under the kubelet's names (node.md 9.1).

A pod is counted once, with its verdict. Pods that have a verdict of an earlier process are not placed again, and so are
not counted again after a restart.
"""

from services.podsync.adapters.timed_placer import TimedPlacer
from services.podsync.core.placement.pool_counts import allocations, assignments, errors
from shared.metrics.family import counter, exponential, histogram
from shared.metrics.registry import Registry

CPU_REQUESTS = counter(
    "kubelet_cpu_manager_pinning_requests_total", "Containers for which CPUs of their own were requested."
)
CPU_ERRORS = counter("kubelet_cpu_manager_pinning_errors_total", "Containers that could not get the CPUs of their own.")
MEMORY_REQUESTS = counter(
    "kubelet_memory_manager_pinning_requests_total", "Containers for which memory of NUMA nodes was requested."
)
MEMORY_ERRORS = counter(
    "kubelet_memory_manager_pinning_errors_total", "Containers that could not get memory of NUMA nodes."
)
ADMISSIONS = counter(
    "kubelet_topology_manager_admission_requests_total", "Pods that were placed or refused, with a static policy."
)
REFUSED = counter(
    "kubelet_topology_manager_admission_errors_total", "Pods that were refused while resources were to be aligned."
)
DURATION = histogram(
    "kubelet_topology_manager_admission_duration_ms",
    "Time to place a pod, with a static policy.",
    buckets=exponential(0.05, 2, 15),
)
ALIGNED = counter(
    "kubelet_container_aligned_compute_resources_count",
    "Containers or pods whose resources keep a boundary.",
    *("scope", "boundary"),
)
NOT_ALIGNED = counter(
    "kubelet_container_aligned_compute_resources_failure_count",
    "Containers or pods that were refused because a boundary could not be kept.",
    *("scope", "boundary"),
)
ALLOCATIONS = counter(
    "resource_manager_allocations_total",
    "Parts of a resource that a pod or a container got alone, with feature gate PodLevelResourceManagers.",
    *("resource_name", "source"),
)
ALLOCATION_ERRORS = counter(
    "resource_manager_allocation_errors_total",
    "Pods that could not get a resource, with feature gate PodLevelResourceManagers.",
    *("resource_name", "source"),
)
ASSIGNMENTS = counter(
    "resource_manager_container_assignments",
    "Containers that got a resource alone or share their pod's, with feature gate PodLevelResourceManagers.",
    *("resource_name", "assignment_type"),
)


class PlacementMetrics:
    """Counts the attempts of a placer."""

    def __init__(self, metrics: Registry, placer: TimedPlacer) -> None:
        self._placer = placer
        self._cpu_requests, self._cpu_errors = metrics.counter(CPU_REQUESTS), metrics.counter(CPU_ERRORS)
        self._memory_requests, self._memory_errors = metrics.counter(MEMORY_REQUESTS), metrics.counter(MEMORY_ERRORS)
        self._admissions, self._refused = metrics.counter(ADMISSIONS), metrics.counter(REFUSED)
        self._duration = metrics.histogram(DURATION)
        self._aligned, self._not_aligned = metrics.counter(ALIGNED), metrics.counter(NOT_ALIGNED)
        self._by_pool = metrics.counter(ALLOCATIONS), metrics.counter(ALLOCATION_ERRORS), metrics.counter(ASSIGNMENTS)

    def count(self, uid: str) -> None:
        """Count the placement of a pod, which has its verdict now."""
        timed = self._placer.take_attempt(uid)
        if timed is None:
            return
        attempt = timed.attempt
        self._admissions.inc()
        self._duration.observe(timed.seconds * 1000)
        for family, count in (
            (self._refused, attempt.topology_errors),
            (self._cpu_requests, attempt.cpu_requests),
            (self._cpu_errors, attempt.cpu_errors),
            (self._memory_requests, attempt.memory_requests),
            (self._memory_errors, attempt.memory_errors),
        ):
            family.inc(by=count)
        for alignment in attempt.alignments:
            (self._aligned if alignment.kept else self._not_aligned).inc(alignment.scope, alignment.boundary)
        if self._placer.pod_level:
            found = allocations(attempt.placement), errors(attempt), assignments(attempt.placement)
            for family, labels in zip(self._by_pool, found, strict=True):
                for each in labels:
                    family.inc(*each)
