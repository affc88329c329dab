"""Decides which Event object an event becomes: combined with similar ones, counted with equal ones, or dropped as spam.

Pure; pods.md 13.1. The same events in the same order with the same times result in the same objects, so that a
restarted status finds out what the earlier process has written. Events that are no longer on a stream are in the saved
counts. `now` is wall seconds, the event's own time.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct

from bus.messages.event import KubeEvent
from services.status.core.event_counts import RecordedEvent

V = TypeVar("V")

MAX_KEYS = 4096  # of each kind
SIMILAR, SIMILAR_FOR = 10, 600.0  # the number of different messages; the seconds since the last one
BURST, REFILL = 25.0, 300.0  # the number of events at once; the seconds until one more may be sent
COMBINED = "(combined from similar events): "


class CorrelatedEvent(Struct, frozen=True):
    """The Event object that an event is written to: a new one (`count` 1), or the first one of its kind with a higher
    count."""

    name: str
    message: str
    count: int
    first_time: float  # wall seconds
    last_time: float
    is_spam: bool  # it is counted but not written
    key: str = ""  # names its kind, in the same way in every process
    counted_before: bool = False  # the saved counts contain this occurrence

    @property
    def recorded(self) -> RecordedEvent:
        """Return what the next process needs of this event."""
        return RecordedEvent(self.name, self.count, self.first_time)


class EventCorrelator:
    """Correlates events, and remembers the newest 4096 keys of each kind. The source of all events is the same, so it
    is not part of a key. `earlier`: the counts of the earlier process, by key."""

    def __init__(self, earlier: Mapping[str, RecordedEvent] | None = None) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._observed: _Recent[RecordedEvent] = _Recent()
        self._buckets: _Recent[_Bucket] = _Recent()
        self._earlier = frozenset(earlier or ())
        for key, recorded in (earlier or {}).items():
            self._observed.put(key, recorded)

    def correlate(self, event: KubeEvent, name: str, now: float, *, done_before: bool = False) -> CorrelatedEvent:
        """Return the Event object for the event. `name`: of the object, if this event is the first of its kind;
        `done_before`: the earlier process has written it."""
        about = (event.kind, event.namespace, event.name, event.uid)
        message = event.message
        similar_key = _digest(*about, event.type, event.reason)
        if self._is_combined(similar_key, message, now):
            key, message = similar_key, f"{COMBINED}{message}"
        else:
            key = _digest(*about, event.type, event.reason, event.field_path, message)
        first = self._observed.get(key)
        counted_before = done_before and first is not None and key in self._earlier
        counted = CorrelatedEvent(
            name=name if first is None else first.name,
            message=message,
            count=1 if first is None else first.count + (not counted_before),
            first_time=now if first is None else first.first_time,
            last_time=now,
            is_spam=self._is_spam(_digest(*about, event.type), now),
            key=key,
            counted_before=counted_before,
        )
        self._observed.put(key, counted.recorded)
        return counted

    def _is_combined(self, key: str, message: str, now: float) -> bool:
        similar = self._similar.get(key)
        if similar is None or now - similar.last > SIMILAR_FOR:
            similar = _Similar()
        similar.last = now
        self._similar.put(key, similar)
        digest = bytes.fromhex(_digest(message))
        if digest in similar.messages:
            return False
        if len(similar.messages) + 1 >= SIMILAR:
            return True  # it is not added: only the first nine messages keep objects of their own
        similar.messages = (*similar.messages, digest)
        return False

    def _is_spam(self, key: str, now: float) -> bool:
        bucket = self._buckets.get(key) or _Bucket(at=now)
        self._buckets.put(key, bucket)
        bucket.left = min(BURST, bucket.left + max(0.0, now - bucket.at) / REFILL)
        bucket.at = now
        if bucket.left < 1.0:
            return True
        bucket.left -= 1.0
        return False


# Thousands of these two are kept: slots and bytes take half the memory of dicts, sets and text.
@dataclass(slots=True)
class _Similar:
    last: float = 0.0
    messages: tuple[bytes, ...] = ()  # digests


@dataclass(slots=True)
class _Bucket:
    at: float
    left: float = BURST


class _Recent(Generic[V]):
    """A map that keeps the most recently used keys."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, V] = OrderedDict()

    def get(self, key: str) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: str, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > MAX_KEYS:
            self._values.popitem(last=False)


def _digest(*parts: str) -> str:
    """Return 32 hex digits for a key, whatever the length of its parts."""
    return hashlib.blake2b(_joined(parts), digest_size=16).hexdigest()


def _joined(parts: Iterable[str]) -> bytes:
    return "\0".join(parts).encode("utf-8", "surrogatepass")
