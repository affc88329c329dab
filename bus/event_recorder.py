"""A service's own end of `events/<service>`: numbers the Kubernetes Events to be recorded and keeps the newest.

The service chooses the events; status writes them to the API server.
"""

from dataclasses import replace

from bus.interface import OwnedStream
from bus.messages.event import KEPT, KubeEvent
from shared.clock import Clock
from shared.timestamps import rfc3339_micro


class EventRecorder:
    """Puts events under growing keys and drops all but the newest 200."""

    def __init__(self, stream: OwnedStream[KubeEvent], clock: Clock) -> None:
        self._stream, self._clock = stream, clock
        self._number = 0
        stream.mark_complete()  # those of an earlier incarnation are no more: a follower need not keep them

    def record(self, event: KubeEvent, *, cause: str = "") -> KubeEvent:
        """Publish; the time is filled in when the event has none. The event as published."""
        if not event.time:
            event = replace(event, time=rfc3339_micro(self._clock.wall()))
        self._number += 1
        self._stream.put(str(self._number), event, cause)
        if self._number > KEPT:
            self._stream.delete(str(self._number - KEPT), "newer events")
        return event
