"""Decides which containers get CPUs of their own, and which: the CPU manager's policies none and static (node.md 4.10).

Keeps no state: what is free is an argument, and CPUs of init containers that have ended are found in what the pod's
earlier containers were given.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from services.podsync.core.placement.attempt import Alignment, Boundary
from services.podsync.core.placement.cpu_choice import take_by_topology
from services.podsync.core.placement.cpu_distribution import take_across_numa
from services.podsync.core.placement.cpu_requests import exclusive_cpus, pod_exclusive_cpus, reusable_cpus
from services.podsync.core.placement.hint import Hint, Hints, NodeSet, PlacementError, node_sets
from services.podsync.core.placement.pod_placement import PodPlacement
from shared.model.cpu_list import write_cpus
from shared.model.machine_topology import CpuSet, MachineTopology
from shared.model.objects import Object

_NONE: CpuSet = frozenset()
_CONTAINER = "container"  # the scope in which CPUs are aligned


class CpuOption(StrEnum):
    """Has the names of options as cpuManagerPolicyOptions has them."""

    FULL_PCPUS_ONLY = "full-pcpus-only"
    STRICT_CPU_RESERVATION = "strict-cpu-reservation"
    PREFER_ALIGN_BY_UNCORE_CACHE = "prefer-align-cpus-by-uncorecache"
    DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
    DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
    ALIGN_BY_SOCKET = "align-by-socket"


class CpuSettings(Struct, frozen=True, kw_only=True):
    """Has the policy, its enabled options, and what is reserved: the named CPUs, or that many (rounded up) of all."""

    static: bool = False
    options: frozenset[CpuOption] = frozenset()
    reserved_cpus: CpuSet = frozenset()
    reserved_count: int = 0


class SmtAlignmentError(PlacementError):
    """Says that whole cores cannot serve a request, with the option full-pcpus-only. `available`: CPUs of whole cores;
    None when the request is no multiple of a core's CPUs."""

    def __init__(self, requested: int, per_core: int, available: int | None = None) -> None:
        detail = (
            f"requested {requested} cpus not multiple cpus per core = {per_core}"
            if available is None
            else f"not enough free physical CPUs: available physical CPUs = {available}, "
            f"requested CPUs = {requested}, CPUs per core = {per_core}"
        )
        super().__init__(f"SMT Alignment Error: {detail}", "SMTAlignmentError")


class CpuPolicy:
    """Gives CPUs to containers. `free` is always the shared pool that the other active pods leave. `pod_level`: pods
    with resources of their own get some too."""

    def __init__(self, topology: MachineTopology, settings: CpuSettings, *, pod_level: bool = False) -> None:
        self._topology = topology
        self._settings = settings
        self._pod_level = pod_level
        self.reserved = reserved_cpus(topology, settings)

    @property
    def allocatable(self) -> CpuSet:
        """The CPUs that containers can get for themselves."""
        return self._topology.all_cpus - self.reserved if self._settings.static else _NONE

    def shared_pool(self, taken: Iterable[CpuSet]) -> CpuSet:
        """Return the CPUs that nobody has for itself, where others have `taken` some; with strict-cpu-reservation
        without the reserved ones."""
        pool = (
            self._topology.all_cpus - self.reserved
            if self._has(CpuOption.STRICT_CPU_RESERVATION)
            else (self._topology.all_cpus)
        )
        return pool.difference(*taken)

    def cpus_to_share(self, taken: Iterable[CpuSet]) -> CpuSet:
        """Return the CPUs on which containers without CPUs of their own run: the shared pool. Where others have taken
        all of it, which strict-cpu-reservation permits, these are the reserved ones: in the Go kubelet such containers
        then run on all CPUs, also on those that others have for themselves."""
        return self.shared_pool(taken) or self.reserved

    def hints(self, pod: Object, container: Object, free: CpuSet, own: PodPlacement) -> Hints:
        """Return the sets of NUMA nodes that have CPUs for the container; `own`: what its pod already has."""
        return self._hints(self.requested(pod, container), *self._pools(pod, free, own))

    def pod_hints(self, pod: Object, free: CpuSet) -> Hints:
        """Return the sets of NUMA nodes that have CPUs for all containers of the pod."""
        requested = pod_exclusive_cpus(pod, pod_level=self._pod_level)
        return self._hints(requested, *self._pools(pod, free, PodPlacement()))

    def allocate(
        self, pod: Object, container: Object, affinity: NodeSet | None, free: CpuSet, own: PodPlacement
    ) -> CpuSet:
        """Return the container's own CPUs, none when it runs in the shared pool. First go those of the NUMA nodes
        of `affinity` (with align-by-socket: of their sockets). Raise PlacementError."""
        return self._choose(self.requested(pod, container), affinity, *self._pools(pod, free, own))

    def allocate_pod(self, pod: Object, affinity: NodeSet | None, free: CpuSet) -> CpuSet:
        """Return the CPUs of a pod with resources of its own, of which its containers then get parts. Raise
        PlacementError."""
        requested = pod_exclusive_cpus(pod, pod_level=self._pod_level)
        return self._choose(requested, affinity, *self._pools(pod, free, PodPlacement()))

    def requested(self, pod: Object, container: Object) -> int:
        """Return how many CPUs the container is to get for itself."""
        return exclusive_cpus(pod, container, pod_level=self._pod_level) if self._settings.static else 0

    def take(self, available: CpuSet, count: int) -> CpuSet:
        """Return that many of these CPUs, as the options choose them. Raise PlacementError."""
        return _take(self._topology, self._settings.options, available, count)

    def _choose(self, requested: int, affinity: NodeSet | None, available: CpuSet, reusable: CpuSet) -> CpuSet:
        if not self._settings.static or not requested:
            return _NONE
        pool = available | reusable
        self._check_alignment(requested, pool)
        chosen = _NONE
        if affinity is not None:
            aligned = pool & self._aligned_cpus(affinity)
            chosen = self.take(aligned, min(requested, len(aligned)))
        chosen |= self.take(pool - chosen, requested - len(chosen))
        if self._has(CpuOption.FULL_PCPUS_ONLY) and self._topology.whole_cores(chosen) != chosen:
            raise SmtAlignmentError(requested, self._topology.cpus_per_core, len(pool))
        return chosen

    @property
    def misalignments(self) -> tuple[Alignment, ...]:
        """What could not be kept where a container is refused its CPUs."""
        if not self._has(CpuOption.FULL_PCPUS_ONLY):
            return ()
        return (Alignment(scope=_CONTAINER, boundary=Boundary.PHYSICAL_CPU, kept=False),)

    def alignments(self, cpus: CpuSet) -> tuple[Alignment, ...]:
        """Return the boundaries that a container's own CPUs keep; none where it has none."""
        boundaries = []
        if cpus and self._has(CpuOption.FULL_PCPUS_ONLY):
            boundaries.append(Boundary.PHYSICAL_CPU)
        if len({self._topology.cpus[cpu].uncore_cache for cpu in cpus}) == 1:
            boundaries.append(Boundary.UNCORE_CACHE)
        return tuple(Alignment(scope=_CONTAINER, boundary=boundary) for boundary in boundaries)

    def _has(self, option: CpuOption) -> bool:
        return self._settings.static and option in self._settings.options

    def _pools(self, pod: Object, free: CpuSet, own: PodPlacement) -> tuple[CpuSet, CpuSet]:
        """Return the CPUs that nobody has for itself, and those that the pod's init containers leave. With
        full-pcpus-only neither has parts of cores, which reserved CPUs or earlier settings may leave."""
        given = frozenset(cpu for placement in own.containers.values() for cpu in placement.cpus)
        available, reusable = free - self.reserved - given, reusable_cpus(pod, own)
        if self._has(CpuOption.FULL_PCPUS_ONLY):
            whole = self._topology.whole_cores(available | reusable)
            return available & whole, reusable & whole
        return available, reusable

    def _check_alignment(self, requested: int, pool: CpuSet) -> None:
        if not self._has(CpuOption.FULL_PCPUS_ONLY):
            return
        per_core = self._topology.cpus_per_core
        if requested % per_core:
            raise SmtAlignmentError(requested, per_core)
        if requested > len(pool):
            raise SmtAlignmentError(requested, per_core, len(pool))

    def _aligned_cpus(self, affinity: NodeSet) -> CpuSet:
        if not self._has(CpuOption.ALIGN_BY_SOCKET):
            return self._topology.cpus_of_nodes(affinity)
        sockets = self._topology.sockets_of_nodes(affinity)
        return frozenset(cpu.id for cpu in self._topology.cpus.values() if cpu.socket in sockets)

    def _hints(self, requested: int, available: CpuSet, reusable: CpuSet) -> Hints:
        if not self._settings.static or not requested:
            return {}
        every = self._topology.cpu_nodes
        cpus, usable = self._count_by_node(self._topology.all_cpus), self._count_by_node(available | reusable)
        bound = self._count_by_node(reusable).keys()
        sets = node_sets(every)
        large = (len(nodes) for nodes in sets if sum(cpus[node] for node in nodes) >= requested)
        smallest = next(large, len(every))
        return {
            "cpu": tuple(
                Hint(nodes, self._is_preferred(nodes, smallest))
                for nodes in sets
                if bound <= nodes and sum(usable[node] for node in nodes) >= requested
            )
        }

    def _count_by_node(self, cpus: CpuSet) -> Counter[int]:
        return Counter(self._topology.cpus[cpu].numa_node for cpu in cpus)

    def _is_preferred(self, nodes: NodeSet, smallest: int) -> bool:
        """Return whether these are no more NUMA nodes than a request needs on a free machine, or with align-by-socket
        on no more sockets."""
        if len(nodes) == smallest or not self._has(CpuOption.ALIGN_BY_SOCKET):
            return len(nodes) == smallest
        every = self._topology.sockets_of_nodes(frozenset(self._topology.cpu_nodes))
        per_socket = len(self._topology.cpu_nodes) // len(every)
        return per_socket > 0 and len(self._topology.sockets_of_nodes(nodes)) == -(-smallest // per_socket)


def reserved_cpus(topology: MachineTopology, settings: CpuSettings) -> CpuSet:
    """Return the CPUs that no container gets for itself. They may be fewer than the settings say: `settings_error`."""
    if not settings.static:
        return _NONE
    if settings.reserved_cpus:
        return settings.reserved_cpus & topology.all_cpus
    return _take(topology, settings.options, topology.all_cpus, min(settings.reserved_count, len(topology.cpus)))


def settings_error(topology: MachineTopology, settings: CpuSettings) -> str:
    """Return why the settings cannot be used on this machine, or "" when they can."""
    if not settings.static:
        return ""
    if offline := settings.reserved_cpus - topology.all_cpus:
        return f"reserved CPUs {write_cpus(offline)} are not online on this machine"
    reserved, wanted = reserved_cpus(topology, settings), settings.reserved_count
    if len(reserved) != wanted:
        size = write_cpus(reserved)
        return f"[cpumanager] unable to reserve the required amount of CPUs (size of {size} did not equal {wanted})"
    sockets = topology.sockets_of_nodes(frozenset(topology.cpu_nodes))
    if CpuOption.ALIGN_BY_SOCKET in settings.options and len(sockets) > len(topology.cpu_nodes):
        return "align-by-socket does not go with a machine that has more sockets than NUMA nodes"
    return ""


def _take(topology: MachineTopology, options: frozenset[CpuOption], available: CpuSet, count: int) -> CpuSet:
    if CpuOption.DISTRIBUTE_ACROSS_NUMA in options:
        group = topology.cpus_per_core if CpuOption.FULL_PCPUS_ONLY in options else 1
        return take_across_numa(topology, available, count, max(group, 1))
    return take_by_topology(
        topology,
        available,
        count,
        spread=CpuOption.DISTRIBUTE_ACROSS_CORES in options,
        by_uncore=CpuOption.PREFER_ALIGN_BY_UNCORE_CACHE in options,
    )
