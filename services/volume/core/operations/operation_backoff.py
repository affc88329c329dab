"""Admits one operation at a time for each volume of a pod, and decides when a failed one may run again (volumes.md 2.1,
5.1); pure.

Times are seconds of one monotonic clock. A device is a volume of the pod "". There is no queue: after each event the
reconciler compares desired and actual state again, and this only shows which operations run and which wait.
"""

from dataclasses import dataclass, field

from services.volume.core.operations.operations import Kind, Operation, kind_of
from shared.time.backoff import Backoff

RETRIES = Backoff(initial=0.5, cap=122.0)


@dataclass
class _Attempts:
    kind: str
    failures: int
    not_before: float


@dataclass
class OperationBackoff:
    """The operations that run, and the doubling waits after failures. An operation of another kind on the same volume
    starts with the shortest wait."""

    # pod UID -> volume -> operation; none empty
    _running: dict[str, dict[str, Operation]] = field(default_factory=dict)
    _performed: set[tuple[str, str]] = field(
        default_factory=set
    )  # (pod UID, volume) of the operations that had their turn
    _waiting: dict[str, set[str]] = field(default_factory=dict)  # pod UID -> unique names; none empty
    _attempts: dict[tuple[str, str], _Attempts] = field(default_factory=dict)
    _hung: set[Operation] = field(default_factory=set)  # removals that failed, and run until `returned`
    # Pod UID and volume of operations that run, and whose cause of an earlier failure may be gone since they started.
    _changed: set[tuple[str, str]] = field(default_factory=set)

    def may_start(self, operation: Operation, now: float) -> bool:
        """Return whether no operation runs on this volume and the wait is over; pod-wide operations exclude all
        others."""
        running = self._running.get(operation.uid, {})
        if operation.volume in running or (running and (operation.volume == "" or "" in running)):
            return False
        attempts = self._attempts.get((operation.uid, operation.volume))
        return attempts is None or attempts.kind != type(operation).__name__ or attempts.not_before <= now

    def start(self, operation: Operation) -> None:
        """Note that the operation runs from now on."""
        self._running.setdefault(operation.uid, {})[operation.volume] = operation

    def perform(self, operation: Operation) -> None:
        """Note that the running operation has its turn and is performed from now on."""
        self._performed.add((operation.uid, operation.volume))

    def performed(self, uid: str, volume: str) -> Operation | None:
        """Return the operation that is performed on this volume; one that runs may wait for content or its turn."""
        return self.running(uid, volume) if (uid, volume) in self._performed else None

    def wait(self, uid: str, unique_name: str) -> None:
        """Note that an unmount for this pod waits for what is performed on the device. That holds until the next look
        at the pod."""
        self._waiting.setdefault(uid, set()).add(unique_name)

    def look_again(self, uid: str) -> None:
        """Forget which operations wait for this pod, because a look at the pod finds them out again."""
        self._waiting.pop(uid, None)

    def waits(self, uid: str) -> bool:
        """Return whether an unmount for this pod waits for what is performed on its device."""
        return uid in self._waiting

    def is_awaited(self, unique_name: str) -> bool:
        """Return whether an unmount waits for what is performed on this device."""
        return any(unique_name in names for names in self._waiting.values())

    def abandoned(self, operation: Operation) -> None:
        """Note that the operation was not performed; the count of its failures stays."""
        self._ended(operation)

    def running(self, uid: str, volume: str) -> Operation | None:
        """Return the operation that runs on this volume."""
        return self._running.get(uid, {}).get(volume)

    def running_for(self, uid: str) -> list[Operation]:
        """Return the operations that run for one pod, or "" for devices."""
        return list(self._running.get(uid, {}).values())

    def succeeded(self, operation: Operation) -> None:
        """Note that the operation is done, and forget its failures."""
        self._ended(operation)
        self._attempts.pop((operation.uid, operation.volume), None)

    def failed(self, operation: Operation, now: float, *, growing: bool = True, under_way: bool = False) -> float:
        """Note that the operation failed; return the seconds until it may run again. `growing` False: the wait does not
        grow. `under_way`: its call goes on. A removal then counts as running until `returned`, because it may still
        remove what another operation would mount."""
        key = (operation.uid, operation.volume)
        changed = key in self._changed
        if under_way and kind_of(operation) is Kind.REMOVAL:
            self._hung.add(operation)
        else:
            self._ended(operation)
        kind = type(operation).__name__
        before = self._attempts.get(key)
        failures = before.failures + 1 if before is not None and before.kind == kind and growing else 1
        wait = 0.0 if changed else RETRIES.delay(failures)
        self._attempts[key] = _Attempts(kind, failures, now + wait)
        return wait

    def returned(self, operation: Operation) -> None:
        """Note that the call of an operation that failed while it was under way has returned."""
        if operation in self._hung:
            self._ended(operation)

    def _ended(self, operation: Operation) -> None:
        self._hung.discard(operation)
        self._performed.discard((operation.uid, operation.volume))
        self._changed.discard((operation.uid, operation.volume))
        running = self._running.get(operation.uid, {})
        running.pop(operation.volume, None)
        if not running:
            self._running.pop(operation.uid, None)

    def retry_now(self, uid: str, volume: str) -> None:
        """End the wait of a volume, because the cause of its failure may be gone. An operation that runs may have read
        the earlier state: if it fails, it runs again at once."""
        if volume in self._running.get(uid, {}):
            self._changed.add((uid, volume))
        if attempts := self._attempts.get((uid, volume)):
            attempts.not_before = 0.0

    def retry_all_now(self, prefix: str) -> None:
        """End the waits of all volumes and devices whose names have this prefix, because the cause of their failures
        may be gone."""
        for (_, volume), attempts in self._attempts.items():
            if volume.startswith(prefix):
                attempts.not_before = 0.0
        for uid, operations in self._running.items():
            self._changed.update((uid, volume) for volume in operations if volume.startswith(prefix))

    def forget(self, uid: str) -> None:
        """Forget a pod of which nothing is left."""
        self._attempts = {key: attempts for key, attempts in self._attempts.items() if key[0] != uid}

    def next_attempt(self, now: float) -> float | None:
        """Return when the next wait ends; None when nothing waits."""
        return min((a.not_before for a in self._attempts.values() if a.not_before > now), default=None)
