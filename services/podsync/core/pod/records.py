"""Has every pod's record by UID: the one place where the record of a decision replaces the earlier one.
Two indexes keep the work of one event independent of the number of finished pods: UIDs by full name, and those not at
rest.
"""

from bus.messages.podsync import PodState
from services.podsync.core.pod.record import NEVER, PodRecord


class Records:
    """Has the records. A record is at rest when its pod is finished and only events of that pod can change it."""

    def __init__(self) -> None:
        self.by_uid: dict[str, PodRecord] = {}
        self._named: dict[str, dict[str, None]] = {}  # full name -> UIDs
        self._at_work: dict[str, None] = {}  # UIDs
        self._changed: dict[str, None] = {}  # UIDs since `take_changed`

    def add(self, record: PodRecord) -> None:
        """Add a record, in place of an earlier one of the same UID."""
        self.by_uid[record.uid] = record
        self._changed[record.uid] = self._at_work[record.uid] = None
        self._named.setdefault(record.full_name, {})[record.uid] = None

    def put(self, record: PodRecord) -> None:
        """Replace the record of this UID with a later one. Raises KeyError where there is none."""
        if record.uid not in self.by_uid:
            raise KeyError(record.uid)
        self.by_uid[record.uid] = record
        self._changed[record.uid] = None

    def remove(self, uid: str) -> None:
        """Remove a record. Raises KeyError where there is none."""
        record = self.by_uid.pop(uid)
        self._at_work.pop(uid, None)
        self._changed[uid] = None
        named = self._named[record.full_name]
        del named[uid]
        if not named:
            del self._named[record.full_name]

    def note_rest(self, uid: str) -> None:
        """Evaluate whether the pod's record is at rest now; called after every decision about it."""
        record = self.by_uid.get(uid)
        if record is None:
            return  # the pod was forgotten
        if record.saved.state is PodState.FINISHED and record.call is None and record.wake_at == NEVER:
            self._at_work.pop(uid, None)
        else:
            self._at_work[uid] = None

    def take_changed(self) -> list[str]:
        """Return, once, the UIDs of the records that were added, replaced or removed."""
        changed, self._changed = list(self._changed), {}
        return changed

    def at_work(self) -> list[PodRecord]:
        """Return the records that are not at rest."""
        return [self.by_uid[uid] for uid in self._at_work]

    def namesakes(self, record: PodRecord) -> list[PodRecord]:
        """Return the records of other UIDs with the same full name."""
        return [self.by_uid[uid] for uid in self._named.get(record.full_name, ()) if uid != record.uid]
