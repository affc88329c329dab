"""Has the active pods of the node, the sums of what they take, and the placements that are not free. Pure.

A change of one pod takes the same time with any number of pods, except that a new placement copies the mapping of all.
"""

from collections.abc import Mapping

from services.podsync.core.admission.counted import counted_requests
from services.podsync.core.admission.placed import holds_placement, is_active
from services.podsync.core.admission.taken import Taken, TakenSums
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods


class ActivePods:
    """Has the active pods of one node, whether or not a source lists them."""

    def __init__(self, pods: TrackedPods) -> None:
        self._pods = pods
        self._active: dict[str, TrackedPod] = {}
        self._sums = TakenSums()
        self._placements: Mapping[str, PodPlacement] = {}

    def by_uid(self) -> dict[str, TrackedPod]:
        """Return these pods as they are now, by UID; the caller must not change them."""
        self._follow()
        return self._active

    def taken(self) -> Taken:
        """Return what all of them take now; it is valid until a pod changes."""
        self._follow()
        return self._sums.taken()

    def placements(self) -> Mapping[str, PodPlacement]:
        """Return the placements that are not free, by UID, also of pods that are not active but may still run: the same
        object until one changes."""
        self._follow()
        return self._placements

    def _follow(self) -> None:
        for uid in self._pods.take_changed():
            tracked = self._pods.by_uid.get(uid)
            if tracked is not None and is_active(tracked):
                self._active[uid] = tracked
                self._sums.put(tracked.saved.pod, counted_requests(tracked))
            elif uid in self._active:
                del self._active[uid]
                self._sums.remove(uid)
            held = tracked is not None and holds_placement(tracked)
            self._note_placement(uid, tracked.saved.placement if tracked is not None and held else NOT_PLACED)

    def _note_placement(self, uid: str, placement: PodPlacement) -> None:
        if self._placements.get(uid, NOT_PLACED) != placement:
            others = {other: given for other, given in self._placements.items() if other != uid}
            self._placements = others if placement == NOT_PLACED else {**others, uid: placement}
