"""Has what happened when a pod was placed, as the kubelet counts it (node.md 4.12 and 9.1)."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement


class Boundary(StrEnum):
    """Says within what a container's or pod's resources are together: the label `boundary`."""

    NUMA_NODE = "numa_node"
    PHYSICAL_CPU = "physical_cpu"
    UNCORE_CACHE = "uncore_cache"


class Alignment(Struct, frozen=True, kw_only=True):
    """Has one boundary that was kept, or could not be kept. `scope`: container or pod."""

    scope: str
    boundary: Boundary
    kept: bool = True


class Step(Struct, frozen=True, kw_only=True):
    """Has one step of a placement. `cpus_requested`, `memory_requested`: a container was to get CPUs, or memory of
    NUMA nodes, alone."""

    cpus_requested: bool = False
    memory_requested: bool = False
    is_refused: bool = False
    alignments: tuple[Alignment, ...] = ()


class Attempt(Struct, frozen=True, kw_only=True):
    """Has the steps of one placement and its end: a placement, or an error. `aligns`: whether the topology manager has
    another policy than none; only then is a refusal its error."""

    steps: tuple[Step, ...]
    aligns: bool
    placement: PodPlacement = NOT_PLACED
    error: PlacementError | None = None

    @property
    def cpu_requests(self) -> int:
        """How many containers were to get CPUs alone, the refused one included."""
        return sum(step.cpus_requested for step in self.steps)

    @property
    def cpu_errors(self) -> int:
        """How many of them could not get them: one or none."""
        return sum(step.cpus_requested and step.is_refused for step in self.steps)

    @property
    def memory_requests(self) -> int:
        """How many containers were to get memory of NUMA nodes alone, the refused one included."""
        return sum(step.memory_requested for step in self.steps)

    @property
    def memory_errors(self) -> int:
        """How many of them could not get it: one or none."""
        return sum(step.memory_requested and step.is_refused for step in self.steps)

    @property
    def topology_errors(self) -> int:
        """Whether the topology manager has refused the pod: one or none."""
        return int(self.aligns and self.error is not None)

    @property
    def alignments(self) -> Iterable[Alignment]:
        """The boundaries that were kept, and those that could not be kept."""
        return (alignment for step in self.steps for alignment in step.alignments)
