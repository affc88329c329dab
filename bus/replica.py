"""PURE. Keeps the follower's side of a stream: turns frames, snapshots and silence into changes to deliver, or a
request for the snapshot.

Decides when this copy is in step with its owner, and which keys count as deleted; knows nothing of sockets and types of
values, and of time only the `now` it is given."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from bus.beat import STALE_AFTER_SECONDS
from bus.codec import speaks
from bus.frames import Update, UpdateKind
from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.beat import Beat
from bus.messages.snapshot import Snapshot

MAX_KEPT_UPDATES = (
    1000  # while a snapshot is under way; the subscriber's high-water mark, more would not have arrived either
)


class Outcome(Struct, frozen=True):
    """The result of one input: changes in the order of delivery, and why a snapshot is needed ("" = it is not)."""

    changes: tuple[Change[bytes], ...] = ()
    need_snapshot: str = ""


NOTHING = Outcome()


class Replica:
    """A copy of one stream. It starts empty, incomplete and stale. `stale_after`: seconds without proof of being in
    sync.

    After an outcome that needs a snapshot the replica waits: give it `snapshot` or `snapshot_lost`. Updates that arrive
    meanwhile are kept and applied on top; an update that is still missing then shows as a gap, and the snapshot is
    requested again."""

    def __init__(self, stream: str, stale_after: float = STALE_AFTER_SECONDS) -> None:
        self.stream = stream
        self.incarnation = ""  # that of the copied owner; "" = none was received yet
        self.number = 0
        self.complete = False
        self.stale = True
        self.waiting = False  # a snapshot is under way
        self._owed = ""  # why a snapshot was requested, until one is received; "" = none is needed
        self._stale_after = stale_after  # seconds
        self._in_step_at = 0.0  # CLOCK_MONOTONIC seconds of the last proof that nothing is missing
        self._entries: dict[str, bytes] = {}
        self._carried: set[str] = set()  # keys of an earlier incarnation that the present one has not confirmed
        self._kept: list[Update] = []
        self._delivered = Freshness(complete=False, stale=True)

    def __repr__(self) -> str:
        standing = f"{'complete' if self.complete else 'incomplete'}{', stale' if self.stale else ''}"
        return f"<Replica {self.stream} {self.incarnation}#{self.number} {len(self._entries)} keys {standing}>"

    @property
    def entries(self) -> Mapping[str, bytes]:
        """The encoded values by key, including those carried over from an earlier incarnation."""
        return MappingProxyType(self._entries)

    def update(self, update: Update, now: float) -> Outcome:
        """Take a numbered update, which may be late, repeated, or follow lost ones."""
        if self.waiting:
            self._keep(update)
            return NOTHING
        if update.incarnation != self.incarnation:
            self._keep(update)
            return self._left_behind(update.incarnation)
        if self._owed:
            self._keep(update)
            return self._ask(self._owed)
        if update.number <= self.number:
            return NOTHING
        if update.number > self.number + 1:
            self._keep(update)
            return self._ask(f"updates {self.number + 1} to {update.number - 1} are missing")
        self.number = update.number
        return Outcome((*self._apply(update), *self._in_step(now)))

    def beat(self, beat: Beat, now: float) -> Outcome:
        """Take a beat of the owner, which proves that nothing is missing or shows that something is."""
        if not speaks(beat.protocol):
            return self.foreign()
        number = beat.streams.get(self.stream)
        if self.waiting or number is None:
            return NOTHING
        if beat.incarnation != self.incarnation:
            return self._left_behind(beat.incarnation)
        if self._owed:
            return self._ask(self._owed)
        if number != self.number:
            return self._ask(f"the beat is at {number}, this copy at {self.number}")
        return _outcome(self._in_step(now))

    def snapshot(self, snapshot: Snapshot, now: float) -> Outcome:
        """Take the answer to GetSnapshot. The outcome needs another snapshot when updates were lost meanwhile."""
        left, kept = self.incarnation, self._kept
        self.waiting, self._kept = False, []
        changes: list[Change[bytes]] = []
        if snapshot.incarnation != self.incarnation or snapshot.number >= self.number:
            changes += self._replace(snapshot)
            changes += self._in_step(now)
        need = ""
        for update in kept:
            if update.incarnation == self.incarnation:
                outcome = self.update(update, now)
                changes += outcome.changes
                need = need or outcome.need_snapshot
        # The others are mostly the last updates of the incarnation just left. Even if the newest one is of another
        # incarnation, it is dropped: a late frame of an ended owner then costs one more snapshot, and not one after
        # another.
        if kept and not need and kept[-1].incarnation not in (left, self.incarnation):
            need = self._ask(f"new incarnation {kept[-1].incarnation}").need_snapshot
        return Outcome(tuple(changes), need)

    def snapshot_lost(self) -> None:
        """Note that GetSnapshot was not answered; the next frame requests it again.

        Being in step with the numbers is not enough then. The owner's earlier report that it is complete may have been
        dropped because of a late frame of an ended incarnation, and only the snapshot repeats that report."""
        self.waiting, self._kept = False, []

    def tick(self, now: float) -> Outcome:
        """Note the time. Without proof of being in step for three beats the copy becomes stale; it keeps its values."""
        if not self.stale and now - self._in_step_at > self._stale_after:
            self.stale = True
        return _outcome(self._freshness())

    def foreign(self) -> Outcome:
        """Note that the owner speaks another major version of the protocol, so that nothing from it can be relied
        on."""
        self.stale = True
        return _outcome(self._freshness())

    def _ask(self, why: str) -> Outcome:
        self.waiting, self._owed = True, why
        return Outcome(self._freshness(), why)

    def _left_behind(self, incarnation: str) -> Outcome:
        """Leave the incarnation of the owner, whose report of being complete no longer counts, and request a
        snapshot."""
        self.complete = False
        return self._ask(f"new incarnation {incarnation}")

    def _keep(self, update: Update) -> None:
        if len(self._kept) >= MAX_KEPT_UPDATES:
            self._kept.clear()
        self._kept.append(update)

    def _apply(self, update: Update) -> Iterator[Change[bytes]]:
        if update.kind is UpdateKind.PUT:
            yield from self._put(update.key, update.value, update.cause)
        elif update.kind is UpdateKind.DELETE:
            yield from self._delete(update.key, update.cause)
        else:
            for key in sorted(self._carried):
                yield from self._delete(key, f"not listed by {self.incarnation}, which is complete")
            self.complete = True

    def _replace(self, snapshot: Snapshot) -> Iterator[Change[bytes]]:
        """Replace the values by the snapshot. A key that it does not list is deleted only if the snapshot is complete,
        or if this incarnation had the key."""
        if snapshot.incarnation != self.incarnation:
            self._carried = set(self._entries)
        self.incarnation, self.number, self._owed = snapshot.incarnation, snapshot.number, ""
        if not snapshot.complete:
            self.complete = False
            yield from self._freshness()
        for key in [key for key in self._entries if key not in snapshot.entries]:
            if snapshot.complete or key not in self._carried:
                yield from self._delete(key, "not in the owner's snapshot")
        for key, raw in snapshot.entries.items():
            yield from self._put(key, bytes(raw), "in the owner's snapshot")
        self.complete = snapshot.complete

    def _put(self, key: str, value: bytes, cause: str) -> Iterator[Change[bytes]]:
        self._carried.discard(key)
        if self._entries.get(key) != value:
            self._entries[key] = value
            yield Put(key, value, cause)

    def _delete(self, key: str, cause: str) -> Iterator[Change[bytes]]:
        self._carried.discard(key)
        if self._entries.pop(key, None) is not None:
            yield Deleted(key, cause)

    def _in_step(self, now: float) -> tuple[Freshness, ...]:
        self._in_step_at = now
        self.stale = False
        return self._freshness()

    def _freshness(self) -> tuple[Freshness, ...]:
        """Return the freshness if it differs from the one delivered last."""
        last = self._delivered
        if last.complete == self.complete and last.stale == self.stale:
            return ()
        self._delivered = Freshness(complete=self.complete, stale=self.stale)
        return (self._delivered,)


def _outcome(changes: tuple[Freshness, ...]) -> Outcome:
    return Outcome(changes) if changes else NOTHING
