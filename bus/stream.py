"""Implements the two sides of a stream for a service: typed values that it owns, and typed values that it follows.

An owner encodes each value once; a follower decodes it once and calls every listener in order. `EventRecorder` is the
owner's side of `events/<service>`, which status writes to the API server."""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from bus import codec
from bus.frames import Update
from bus.interface import Change, Deleted, Freshness, OwnedStream, Put
from bus.ledger import Ledger
from bus.measured import DropCounters
from bus.messages.beat import Beat
from bus.messages.event import MAX_KEPT_EVENTS, KubeEvent
from bus.messages.followed import Replicated
from bus.messages.snapshot import Snapshot
from bus.messages.streams import Stream
from bus.replica import NOTHING, Outcome, Replica
from shared.model.frozen_copy import replace
from shared.time.clock import Clock
from shared.time.timestamps import rfc3339_micro

T = TypeVar("T")

log = logging.getLogger(__name__)


class StreamOwner(Generic[T]):
    """Implements `bus.interface.OwnedStream`."""

    def __init__(self, stream: Stream[T], ledger: Ledger, publish: Callable[[Update], None]) -> None:
        self.stream, self.ledger = stream, ledger
        self._publish = publish
        self._values: dict[str, T] = {}

    def put(self, key: str, value: T, cause: str = "") -> None:
        """Give a key a value. It is sent within this turn of the loop, unless the key has the same value already.

        Raises UnencodableError (MessageTooLargeError over 16 MiB), which is also logged; the key then keeps its former
        value."""
        encoded = self._encode(key, value)
        self._values[key] = value
        self._send(self.ledger.put(key, encoded, cause))

    def refresh(self, key: str, value: T) -> None:
        """Give a key another value without an update: only snapshots contain it from now on. Use it for what no
        follower in step needs.

        Nothing happens for a key without a value. Raises as `put` does."""
        if key in self._values:
            encoded = self._encode(key, value)
            self._values[key] = value
            self.ledger.refresh(key, encoded)

    def delete(self, key: str, cause: str = "") -> None:
        """Delete a key; nothing happens when it has no value."""
        self._values.pop(key, None)
        self._send(self.ledger.delete(key, cause))

    def get(self, key: str) -> T | None:
        """Return the value last put under the key."""
        return self._values.get(key)

    def keys(self) -> tuple[str, ...]:
        """Return every key that has a value now."""
        return self.ledger.keys()

    def mark_complete(self) -> None:
        """Mark everything there is as listed: from now on an absent key is a deleted one."""
        self._send(self.ledger.mark_complete())

    def _encode(self, key: str, value: T) -> bytes:
        try:
            return codec.encode(value, f"{self.stream.name} {key}")
        except codec.UnencodableError as error:
            log.error("bus: not published: %s", error)
            raise

    def _send(self, update: Update | None) -> None:
        if update is not None:
            self._publish(update)


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
        self._unreadable: set[str] = set()  # keys whose present value does not decode in this process
        self._owners = Freshness(complete=False, stale=True)  # the freshness of the replica, which does not read values
        self._freshness = self._owners  # the freshness that was reported to the listeners

    def listen(self, on_change: Callable[[Change[T]], None]) -> None:
        """Call `on_change` with every change from now on, after the listeners added before it."""
        self._listeners.append(on_change)

    @property
    def state(self) -> Mapping[str, T]:
        """The owner's values as far as they were received; a live, read-only view."""
        return MappingProxyType(self._values)

    @property
    def complete(self) -> bool:
        """Whether the owner has listed everything in its present incarnation, and all of it was readable."""
        return self._freshness.complete

    @property
    def stale(self) -> bool:
        """Whether there was no proof of being in step for three beats."""
        return self._freshness.stale

    def replicated(self) -> Replicated:
        """Return the state of this copy, for an operator."""
        return Replicated(
            incarnation=self.replica.incarnation,
            number=self.replica.number,
            items=len(self._values),
            complete=self.complete,
            stale=self.stale,
        )

    def update(self, update: Update, now: float) -> str:
        """Take an update. Return why a snapshot is needed, "" = it is not."""
        return self._take(self.replica.update(update, now))

    def beat(self, beat: Beat, now: float) -> str:
        """Take a beat of the owner. Return why a snapshot is needed, "" = it is not."""
        return self._take(self.replica.beat(beat, now))

    def snapshot(self, snapshot: Snapshot, now: float) -> str:
        """Take the answer to GetSnapshot. Return why a snapshot is needed, "" = it is not."""
        return self._take(self.replica.snapshot(snapshot, now))

    def snapshot_lost(self) -> None:
        """Note that the owner did not answer GetSnapshot."""
        self.replica.snapshot_lost()

    def tick(self, now: float) -> None:
        """Note the time, at which the stream may have become stale."""
        self._take(self.replica.tick(now))

    def foreign(self) -> None:
        """Note that the owner speaks another major version of the protocol."""
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
        """Report `incomplete` before any other change, and `complete` again only after all changes that came with
        it."""
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


class EventRecorder:
    """Publishes events under growing keys, and drops all but the newest 200."""

    def __init__(self, stream: OwnedStream[KubeEvent], clock: Clock) -> None:
        self._stream, self._clock = stream, clock
        self._number = 0
        stream.mark_complete()  # events of an earlier incarnation are gone: a follower need not keep them

    def record(self, event: KubeEvent, *, cause: str = "") -> KubeEvent:
        """Publish the event, with the present time when it has none. Return the event as it was published."""
        if not event.time:
            event = replace(event, time=rfc3339_micro(self._clock.wall()))
        self._number += 1
        self._stream.put(str(self._number), event, cause)
        if self._number > MAX_KEPT_EVENTS:
            self._stream.delete(str(self._number - MAX_KEPT_EVENTS), "newer events")
        return event
