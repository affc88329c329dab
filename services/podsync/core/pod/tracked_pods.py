"""Has, in memory, every tracked pod by UID: the one place where the result of a decision replaces the earlier pod.
Two indexes keep the work of one event independent of the number of finished pods: UIDs by full name, and those not at
rest.
"""

from bus.messages.podsync import PodState
from services.podsync.core.pod.tracked_pod import NEVER, TrackedPod


class TrackedPods:
    """Has the pods. A pod is at rest when it is finished and only events of that pod can change it."""

    def __init__(self) -> None:
        self.by_uid: dict[str, TrackedPod] = {}
        self._named: dict[str, dict[str, None]] = {}  # full name -> UIDs
        self._at_work: dict[str, None] = {}  # UIDs
        self._changed: dict[str, None] = {}  # UIDs since `take_changed`

    def add(self, tracked: TrackedPod) -> None:
        """Add a pod, in place of an earlier one of the same UID."""
        self.by_uid[tracked.uid] = tracked
        self._changed[tracked.uid] = self._at_work[tracked.uid] = None
        self._named.setdefault(tracked.full_name, {})[tracked.uid] = None

    def put(self, tracked: TrackedPod) -> None:
        """Replace the pod of this UID with a later version. Raises KeyError where there is none."""
        if tracked.uid not in self.by_uid:
            raise KeyError(tracked.uid)
        self.by_uid[tracked.uid] = tracked
        self._changed[tracked.uid] = None

    def remove(self, uid: str) -> None:
        """Remove a pod. Raises KeyError where there is none."""
        tracked = self.by_uid.pop(uid)
        self._at_work.pop(uid, None)
        self._changed[uid] = None
        named = self._named[tracked.full_name]
        del named[uid]
        if not named:
            del self._named[tracked.full_name]

    def note_rest(self, uid: str) -> None:
        """Evaluate whether the pod is at rest now; called after every decision about it."""
        tracked = self.by_uid.get(uid)
        if tracked is None:
            return  # the pod was forgotten
        if tracked.saved.state is PodState.FINISHED and tracked.call is None and tracked.wake_at == NEVER:
            self._at_work.pop(uid, None)
        else:
            self._at_work[uid] = None

    def take_changed(self) -> list[str]:
        """Return, once, the UIDs of the pods that were added, replaced or removed."""
        changed, self._changed = list(self._changed), {}
        return changed

    def at_work(self) -> list[TrackedPod]:
        """Return the pods that are not at rest."""
        return [self.by_uid[uid] for uid in self._at_work]

    def namesakes(self, tracked: TrackedPod) -> list[TrackedPod]:
        """Return the pods of other UIDs with the same full name."""
        return [self.by_uid[uid] for uid in self._named.get(tracked.full_name, ()) if uid != tracked.uid]
