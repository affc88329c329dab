"""Which Event object an event becomes: combined with similar ones, counted with equal ones, dropped as spam.

Pure; pods.md 13.1. The same events in the same order with the same times give the same objects again: so a restarted
status finds out what the earlier process had written. What is no longer on a stream it takes from the saved counts.
`now` is wall seconds, the event's own time.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from bus.messages.event import KubeEvent
from services.status.core.event_counts import RecordedEvent

V = TypeVar("V")

REMEMBERED = 4096  # keys of each kind
SIMILAR, SIMILAR_FOR = 10, 600.0  # different messages; seconds since the last one
BURST, REFILL = 25.0, 300.0  # events; seconds for one more
COMBINED = "(combined from similar events): "


@dataclass(frozen=True)
class CorrelatedEvent:
    """The Event object an event is written to: a new one (`count` 1) or the first one of its kind, counted up."""

    name: str
    message: str
    count: int
    first_time: float  # wall seconds
    last_time: float
    is_spam: bool  # counted, and not to be written
    key: str = ""  # of its kind, the same in every process
    counted_before: bool = False  # the saved counts contain this occurrence

    @property
    def recorded(self) -> RecordedEvent:
        """What the next process needs."""
        return RecordedEvent(self.name, self.count, self.first_time)


class EventCorrelator:
    """Remembers the newest 4096 keys of each kind. Our source is the same in all of them and in no key.

    `earlier`: the counts of the earlier process, by key.
    """

    def __init__(self, earlier: Mapping[str, RecordedEvent] | None = None) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._observed: _Recent[RecordedEvent] = _Recent()
        self._buckets: _Recent[_Bucket] = _Recent()
        self._earlier = frozenset(earlier or ())
        for key, recorded in (earlier or {}).items():
            self._observed.put(key, recorded)

    def correlate(self, event: KubeEvent, name: str, now: float, *, done_before: bool = False) -> CorrelatedEvent:
        """`name`: of the Event object, if this is the first of its kind. `done_before`: by the earlier process."""
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
            return True  # nor does it join them: a message of the first nine keeps its own object
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


# Thousands of both are kept: slots and bytes take half the memory of dicts, sets and text.
@dataclass(slots=True)
class _Similar:
    last: float = 0.0
    messages: tuple[bytes, ...] = ()  # digests


@dataclass(slots=True)
class _Bucket:
    at: float
    left: float = BURST


class _Recent(Generic[V]):
    """The most recently used keys."""

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
        if len(self._values) > REMEMBERED:
            self._values.popitem(last=False)


def _digest(*parts: str) -> str:
    """Thirty-two hex digits for a key, however long its messages."""
    return hashlib.blake2b(_joined(parts), digest_size=16).hexdigest()


def _joined(parts: Iterable[str]) -> bytes:
    return "\0".join(parts).encode("utf-8", "surrogatepass")
