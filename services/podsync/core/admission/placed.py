"""Decides whether CPUs and NUMA memory suffice for a new pod beside those that have some (node.md 4.12).

A pod that is to end and that no source lists does not reject another one, which then waits until it has stopped: so
no CPU is given twice, and an edited static pod follows the one before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bus.messages.podsync import PodState
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.placing import NodePlacer
from services.podsync.core.placement.pod_placement import PodPlacement
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.objects import Object, uid


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Has the placements of the active pods that have one, by UID."""

    staying: Mapping[str, PodPlacement] = field(default_factory=dict)
    leaving: Mapping[str, PodPlacement] = field(default_factory=dict)  # of pods to end that no source lists

    def with_staying(self, others: Mapping[str, PodPlacement]) -> "Placed":
        """Return these placements beside others, by UID; one of these counts more."""
        return Placed(staying={**others, **self.staying}, leaving=self.leaving)

    def without(self, own: str) -> "Placed":
        """Return the placements of the pods with other UIDs."""
        return Placed(
            staying={other: placement for other, placement in self.staying.items() if other != own},
            leaving={other: placement for other, placement in self.leaving.items() if other != own},
        )


NONE_PLACED = Placed()


def placed_of(pods: Iterable[TrackedPod], listed: Iterable[str]) -> Placed:
    """Return the placements of these active pods; `listed`: the UIDs that a source lists."""
    known = set(listed)
    holders = {tracked.uid: tracked for tracked in pods if tracked.saved.placement.containers}
    leaving = {
        own for own, tracked in holders.items() if own not in known and tracked.saved.state is PodState.TERMINATING
    }
    placements = {own: tracked.saved.placement for own, tracked in holders.items()}
    return Placed(
        staying={own: placement for own, placement in placements.items() if own not in leaving},
        leaving={own: placement for own, placement in placements.items() if own in leaving},
    )


def place_beside(pod: Object, placer: NodePlacer, placed: Placed) -> tuple[PodPlacement, tuple[str, ...]]:
    """Return the pod's placement, and the UIDs of the pods that have CPUs of it, or memory of its NUMA nodes, and must
    stop first. Raises PlacementError."""
    placed = placed.without(uid(pod))
    staying = tuple(placed.staying.values())
    try:
        return placer.place(pod, (*staying, *placed.leaving.values())), ()
    except PlacementError:
        if not placed.leaving:
            raise
        placement = placer.place(pod, staying)
        return placement, tuple(other for other, held in placed.leaving.items() if _share(placement, held))


def _share(one: PodPlacement, other: PodPlacement) -> bool:
    return bool(cpus_of(one) & cpus_of(other) or _memory_nodes(one) & _memory_nodes(other))


def _memory_nodes(placement: PodPlacement) -> frozenset[int]:
    return frozenset(node for given in placement.containers.values() for block in given.memory for node in block.nodes)


def cpus_of(placement: PodPlacement) -> frozenset[int]:
    """Return the CPUs that the pod's containers have for themselves."""
    return frozenset(cpu for given in placement.containers.values() for cpu in given.cpus)
