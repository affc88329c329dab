"""Every pod's record by UID, with the two indexes that keep the work of one event independent of finished pods: the
records by full name, and those that are not at rest.
"""

from collections.abc import Iterator

from bus.messages.podsync import PodState
from services.podsync.core.pod.record import NEVER, PodRecord


class Records:
    """A record is at rest when its pod is finished and only news of that very pod can change anything about it."""

    def __init__(self) -> None:
        self.by_uid: dict[str, PodRecord] = {}
        self._named: dict[str, dict[str, PodRecord]] = {}  # full name -> UID -> record
        self._at_work: dict[str, PodRecord] = {}

    def add(self, record: PodRecord) -> None:
        """Take up a record, in place of an earlier one of the same UID."""
        self.by_uid[record.uid] = self._at_work[record.uid] = record
        self._named.setdefault(record.full_name, {})[record.uid] = record

    def remove(self, record: PodRecord) -> None:
        """Forget a record; raises KeyError when it is not there."""
        del self.by_uid[record.uid]
        self._at_work.pop(record.uid, None)
        named = self._named[record.full_name]
        del named[record.uid]
        if not named:
            del self._named[record.full_name]

    def settle(self, record: PodRecord) -> None:
        """Call after every decision about a pod: finds out whether its record is at rest now."""
        if self.by_uid.get(record.uid) is not record:
            return  # it was forgotten
        if record.saved.state is PodState.FINISHED and record.call is None and record.wake_at == NEVER:
            self._at_work.pop(record.uid, None)
        else:
            self._at_work[record.uid] = record

    def at_work(self) -> list[PodRecord]:
        """The records that are not at rest."""
        return list(self._at_work.values())

    def namesakes(self, record: PodRecord) -> Iterator[PodRecord]:
        """The records of other UIDs with the same full name."""
        return (other for other in list(self._named.get(record.full_name, {}).values()) if other.uid != record.uid)
