"""Keeps what an earlier agent of the node gave to pods that have no verdict here (yet), until it is in their records or
does not count any more (node.md 4.14). Pure."""

from collections.abc import Callable, Mapping

from services.podsync.core.admission.active_pods import ActivePods
from services.podsync.core.admission.placed import Placed, Unit, units_of, with_inherited
from services.podsync.core.placement.pod_division import with_pools
from services.podsync.core.placement.pod_placement import PodPlacement
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.objects import uid as uid_of
from shared.podspec.resources import main_containers


class InheritedPlacements:
    """Has the placements by UID. `desired`: by UID, the pods that the sources are known to list."""

    def __init__(self, pods: TrackedPods, desired: Mapping[str, object], active: ActivePods) -> None:
        self._pods, self._desired, self._active = pods, desired, active
        self.by_uid: Mapping[str, PodPlacement] = {}
        # UID of such a pod -> whether a container of it may run, by what the runtime has shown.
        self.may_run: Callable[[str], bool] = lambda _uid: True
        self._all: tuple[Mapping[str, PodPlacement], Mapping[str, PodPlacement]] | None = None

    def take_over(self, placements: Mapping[str, PodPlacement]) -> None:
        """Take over what an earlier agent gave to pods without a verdict here, by UID. A placement with CPUs or devices
        of a pod that has one is left out, and that pod is placed anew."""
        taken = self._taken()
        self._replace(
            {
                uid: placement
                for uid, placement in placements.items()
                if not self.is_decided(uid) and not taken & units_of(placement)
            }
        )

    def add(self, uid: str, placement: PodPlacement) -> None:
        """Add what a pod has whose verdict is taken back."""
        self._replace({**self.by_uid, uid: placement})

    def ended_with_placements(self) -> list[TrackedPod]:
        """Return the pods that are to end, or are rejected, with their placements, which their records must have."""
        decided = [(self._pods.by_uid[uid], given) for uid, given in self.by_uid.items() if self.is_decided(uid)]
        changed = [(tracked, with_inherited(tracked, given)) for tracked, given in decided]
        return [keeping for tracked, keeping in changed if keeping is not tracked]

    def forget_settled(self, *, sources_complete: bool) -> bool:
        """Forget the placements of pods with a verdict, and of pods that do not run and that no source lists. Return
        whether one was forgotten."""
        if not self.by_uid:
            return False
        taken = self._taken()
        kept = {
            uid: given
            for uid, given in self.by_uid.items()
            if self._is_kept(uid, given, taken, sources_complete=sources_complete)
        }
        if len(kept) == len(self.by_uid):
            return False
        self._replace(kept)
        return True

    def given_to(self, pod: Object) -> PodPlacement | None:
        """Return what an earlier agent gave to those containers of the pod that it still has; None = nothing."""
        given = self.by_uid.get(uid_of(pod))
        if given is None:
            return None
        names = {str(container.get("name")) for container in main_containers(pod)}
        containers = {name: placed for name, placed in given.containers.items() if name in names}
        return with_pools(pod, replace(given, containers=containers)) if containers else None

    def with_active(self) -> Mapping[str, PodPlacement]:
        """Return these placements and those of the pods with a record, by UID: the same object until one changes."""
        active = self._active.placements()
        if not self.by_uid:
            return active
        if self._all is None or self._all[0] is not active:
            self._all = active, {**self.by_uid, **active}
        return self._all[1]

    def placed(self, *, is_static: bool, sources_complete: bool) -> Placed:
        """Return the placements as the verdict on another pod counts them. Those leave that no source will list; and a
        static pod (`is_static`) does not wait until the API server has listed the ones that do not run."""
        leaving = {
            uid: given
            for uid, given in self.by_uid.items()
            if uid not in self._desired and (sources_complete or (is_static and not self.may_run(uid)))
        }
        staying = {uid: given for uid, given in self.by_uid.items() if uid not in leaving}
        return Placed(staying=staying, leaving=leaving)

    def is_decided(self, uid: str) -> bool:
        """Return whether the pod has a verdict."""
        tracked = self._pods.by_uid.get(uid)
        return tracked is not None and tracked.saved.admission_decided

    def _is_kept(self, uid: str, given: PodPlacement, taken: set[Unit], *, sources_complete: bool) -> bool:
        """Return whether the placement still counts; `taken`: what pods with a record have."""
        if self.is_decided(uid):
            return False
        if uid in self._desired or self.may_run(uid):
            return True
        return not sources_complete and not taken & units_of(given)

    def _taken(self) -> set[Unit]:
        return {unit for placement in self._active.placements().values() for unit in units_of(placement)}

    def _replace(self, placements: Mapping[str, PodPlacement]) -> None:
        self.by_uid, self._all = placements, None
