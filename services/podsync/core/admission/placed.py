"""Decides whether CPUs, NUMA memory and devices suffice for a new pod beside those that have some (node.md 4.12).

A pod that is to end and that no source lists does not reject another one, nor does a rejected one that an earlier
agent started. The other one then waits until it has stopped: so no CPU and no device is given twice, and an edited
static pod follows the one before it.
"""

from collections.abc import Container, Iterable, Mapping

from msgspec import Struct, field

from bus.messages.podsync import PodState
from services.podsync.core.placement.device_policy import NO_PLUGINS, PluginDevices
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.placing import NodePlacer
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement, cpus_of, memory_of
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.model.objects import Object, uid
from shared.model.runtime import ContainerState, RuntimePod

Unit = int | tuple[str, str]  # what only one pod can have: a CPU, or a device by resource and id


class Placed(Struct, frozen=True, kw_only=True):
    """Has the placements of the active pods that have one, by UID."""

    staying: Mapping[str, PodPlacement] = field(default_factory=dict)
    leaving: Mapping[str, PodPlacement] = field(default_factory=dict)  # of pods to end that no source lists

    def beside(self, others: "Placed") -> "Placed":
        """Return these placements beside others; one of these counts more."""
        return Placed(staying={**others.staying, **self.staying}, leaving={**others.leaving, **self.leaving})

    def without(self, own: str) -> "Placed":
        """Return the placements of the pods with other UIDs."""
        return Placed(
            staying={other: placement for other, placement in self.staying.items() if other != own},
            leaving={other: placement for other, placement in self.leaving.items() if other != own},
        )


NONE_PLACED = Placed()


def placed_of(pods: Iterable[TrackedPod], listed: Container[str]) -> Placed:
    """Return the placements of these pods; `listed`: the UIDs that a source lists."""
    holders = {tracked.uid: tracked for tracked in pods if tracked.saved.placement.containers}
    leaving = {
        own
        for own, tracked in holders.items()
        if tracked.saved.rejected or (own not in listed and tracked.saved.state is PodState.TERMINATING)
    }
    placements = {own: tracked.saved.placement for own, tracked in holders.items()}
    return Placed(
        staying={own: placement for own, placement in placements.items() if own not in leaving},
        leaving={own: placement for own, placement in placements.items() if own in leaving},
    )


def is_active(tracked: TrackedPod) -> bool:
    """Return whether the pod was admitted and its containers may run."""
    taken_on = tracked.saved.admission_decided and not tracked.saved.rejected and bool(tracked.saved.pod)
    if tracked.saved.state is PodState.SYNC:
        return taken_on and not lifecycle.has_ended(tracked)
    return taken_on and tracked.saved.state is PodState.TERMINATING


def holds_placement(tracked: TrackedPod) -> bool:
    """Return whether what the pod was given is not free yet: a pod that this agent did not admit, because it is
    rejected or only the runtime has it, keeps what an earlier agent gave it as long as its containers may run."""
    if not tracked.saved.placement.containers:
        return False
    if not tracked.saved.admission_decided:
        return True  # chosen already: the verdict waits for device plugins
    if is_active(tracked) or tracked.saved.state is PodState.TERMINATING:
        return True
    return bool(tracked.saved.rejected) and tracked.saved.state is PodState.FINISHED and may_run(tracked)


def may_run(pod: TrackedPod | RuntimePod) -> bool:
    """Return whether a container of the pod may have a process, by what the runtime has shown of it."""
    if isinstance(pod, RuntimePod):
        return any(c.state in (ContainerState.RUNNING, ContainerState.UNKNOWN) for c in pod.containers)
    return bool(pod.alive) if pod.observed.since_start else not pod.new_to_node


def running_cpus(tracked: TrackedPod) -> frozenset[int]:
    """Return the CPUs that those containers of the pod that may have a process have for themselves, or share with
    others of their pod alone."""
    if not tracked.observed.is_current:
        return cpus_of(tracked.saved.placement) if may_run(tracked) else frozenset()
    given = tracked.saved.placement.containers
    own = (given[container.name] for container in tracked.alive if container.name in given)
    return frozenset(cpu for each in own for cpu in each.cpus or each.pool)


def with_inherited(tracked: TrackedPod, given: PodPlacement) -> TrackedPod:
    """Return a pod that this agent did not admit, with what an earlier agent gave it, which its containers keep until
    they have stopped."""
    not_admitted = tracked.saved.rejected or tracked.saved.state is PodState.TERMINATING
    if not not_admitted or tracked.saved.placement != NOT_PLACED:
        return tracked
    return replace(tracked, saved=replace(tracked.saved, placement=given))


def place_beside(
    pod: Object, placer: NodePlacer, placed: Placed, plugins: PluginDevices = NO_PLUGINS
) -> tuple[PodPlacement, tuple[str, ...]]:
    """Return the pod's placement, and the UIDs of the pods that have CPUs or devices of it, or memory of its NUMA
    nodes, and must stop first. Raises PlacementError, and PreferenceNeededError where a plugin must be asked first."""
    placed = placed.without(uid(pod))
    staying = tuple(placed.staying.values())
    try:
        return placer.place(pod, (*staying, *placed.leaving.values()), plugins), ()
    except PlacementError:
        if not placed.leaving:
            raise
        placement = placer.place(pod, staying, plugins)
        return placement, tuple(other for other, held in placed.leaving.items() if _share(placement, held))


def _share(one: PodPlacement, other: PodPlacement) -> bool:
    return bool(units_of(one) & units_of(other) or _memory_nodes(one) & _memory_nodes(other))


def _memory_nodes(placement: PodPlacement) -> frozenset[int]:
    return frozenset(node for block in memory_of(placement) for node in block.nodes)


def units_of(placement: PodPlacement) -> frozenset[Unit]:
    """Return what only one pod can have: the CPUs of `cpus_of`, and devices by resource and id."""
    devices = (of for given in placement.containers.values() for of in given.devices)
    return cpus_of(placement).union((of.resource, name) for of in devices for name in of.ids)
