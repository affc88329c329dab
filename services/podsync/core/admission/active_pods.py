"""Finds the pods that count for admission, preemption and QoS cgroups, and what they take of the node (pods.md 3.1).
Follows the records that have changed, so that a decision takes the same time with any number of pods.
"""

from bus.messages.podsync import PodState
from services.podsync.core.admission.counted import counted_requests
from services.podsync.core.admission.taken import Taken, TakenSums
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.records import Records


class ActivePods:
    """Has the active pods of one node, whether or not a source lists them."""

    def __init__(self, pods: Records) -> None:
        self._pods = pods
        self._active: dict[str, PodRecord] = {}
        self._sums = TakenSums()

    def by_uid(self) -> dict[str, PodRecord]:
        """Return the records of these pods as they are now, by UID; the caller must not change them."""
        self._follow()
        return self._active

    def taken(self) -> Taken:
        """Return what all of them take now; it is valid until a record changes."""
        self._follow()
        return self._sums.taken()

    def _follow(self) -> None:
        for uid in self._pods.take_changed():
            record = self._pods.by_uid.get(uid)
            if record is not None and _is_active(record):
                self._active[uid] = record
                self._sums.put(record.saved.pod, counted_requests(record))
            elif uid in self._active:
                del self._active[uid]
                self._sums.remove(uid)


def _is_active(record: PodRecord) -> bool:
    """Return whether the pod was admitted and its containers may run."""
    taken_on = record.saved.admission_decided and not record.saved.rejected and bool(record.saved.pod)
    if record.saved.state is PodState.SYNC:
        return taken_on and not lifecycle.has_ended(record)
    return taken_on and record.saved.state is PodState.TERMINATING
