"""The follower's side of a stream in one process: decodes each value once and calls every listener in order."""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from bus import codec
from bus.drops import DropCounters
from bus.frames import Update
from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.beat import Beat
from bus.messages.followed import Replicated
from bus.messages.snapshot import Snapshot
from bus.messages.streams import Stream
from bus.replica import NOTHING, Outcome, Replica

T = TypeVar("T")

log = logging.getLogger(__name__)


class StreamFollower(Generic[T]):
    """Implements `bus.interface.FollowedStream`. Each input returns why a snapshot is needed, "" when none is.

    All parts of a process that follow a stream share one: one replica, one snapshot request, one copy of each value.

    A value that does not decode is dropped and its key keeps the value it had. While the owner has such a key the
    following is not complete, whatever the owner reports: `state` then lacks something that exists, and who took what
    it does not list for gone would end a pod because of a change of schema.
    """

    def __init__(self, stream: Stream[T], drops: DropCounters) -> None:
        self.stream = stream
        self.replica = Replica(stream.name)
        self._listeners: list[Callable[[Change[T]], None]] = []
        self._drops = drops
        self._values: dict[str, T] = {}
        self._unreadable: set[str] = set()  # keys whose present value does not decode here
        self._owners = Freshness(complete=False, stale=True)  # freshness of the replica, which reads no values
        self._freshness = self._owners  # the freshness that the listeners know

    def listen(self, on_change: Callable[[Change[T]], None]) -> None:
        """Call `on_change` with every change from now on, after the listeners added before it."""
        self._listeners.append(on_change)

    @property
    def state(self) -> Mapping[str, T]:
        """The owner's values as far as they are known here; a live, read-only view."""
        return MappingProxyType(self._values)

    @property
    def complete(self) -> bool:
        """The owner reports that everything has been listed in its present incarnation, and all was readable."""
        return self._freshness.complete

    @property
    def stale(self) -> bool:
        """No proof of being in step for three beats."""
        return self._freshness.stale

    def replicated(self) -> Replicated:
        """The state of this copy, for an operator."""
        return Replicated(
            incarnation=self.replica.incarnation,
            number=self.replica.number,
            items=len(self._values),
            complete=self.complete,
            stale=self.stale,
        )

    def update(self, update: Update, now: float) -> str:
        """An update arrived."""
        return self._take(self.replica.update(update, now))

    def beat(self, beat: Beat, now: float) -> str:
        """A beat of the owner arrived."""
        return self._take(self.replica.beat(beat, now))

    def snapshot(self, snapshot: Snapshot, now: float) -> str:
        """The owner answered GetSnapshot."""
        return self._take(self.replica.snapshot(snapshot, now))

    def snapshot_lost(self) -> None:
        """The owner did not answer GetSnapshot."""
        self.replica.snapshot_lost()

    def tick(self, now: float) -> None:
        """Time passed."""
        self._take(self.replica.tick(now))

    def foreign(self) -> None:
        """The owner speaks another major version."""
        self._take(self.replica.foreign())

    def _take(self, outcome: Outcome) -> str:
        if outcome is NOTHING:
            return ""
        for change in outcome.changes:
            self._apply(change)
        self._notify_standing()
        return outcome.need_snapshot

    def _apply(self, change: Change[bytes]) -> None:
        match change:
            case Put(key, encoded, cause):
                try:
                    value = codec.decode(encoded, self.stream.value)
                except codec.UndecodableError as error:
                    self._drops.drop("value", f"{self.stream.name} {key}, incomplete until it decodes: {error}")
                    self._unreadable.add(key)
                    self._notify_standing()
                    return
                self._unreadable.discard(key)
                self._values[key] = value
                self._notify(Put(key, value, cause))
            case Deleted(key):
                self._unreadable.discard(key)
                if self._values.pop(key, None) is not None:
                    self._notify(change)
            case Freshness():
                self._owners = change
                self._notify_standing()

    def _notify_standing(self) -> None:
        """Report `incomplete` before any other change, and `complete` again only after all that came with it."""
        freshness = Freshness(complete=self._owners.complete and not self._unreadable, stale=self._owners.stale)
        if freshness != self._freshness:
            self._freshness = freshness
            self._notify(freshness)

    def _notify(self, change: Change[T]) -> None:
        for on_change in self._listeners:
            try:
                on_change(change)
            except Exception:
                log.exception("bus: the follower of %s failed on a %s", self.stream.name, type(change).__name__)
