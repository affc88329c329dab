"""Takes the Events of all services: writes each once to the log, and offers it to the sink of the API server.

An Event that was in a stream before this process followed it is not new: an earlier process may have handled it.
"""

import logging
from typing import Protocol

from bus.interface import Bus, Change, Freshness, Put
from bus.messages.event import KubeEvent
from bus.messages.streams import SERVICES, events_of
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.status.controllers.event_sink import EventSink
from services.status.core.event_log import EventLog
from shared.time.timestamps import rfc3339_micro

_EventChange = Change[KubeEvent]  # made before services are forked, so that they share its pages
OVERLAP_SECONDS = 60.0  # before the start whose Events are logged, because perhaps no earlier process ran then

log = logging.getLogger(__name__)


class EventHandler(Protocol):
    """Receives an Event of `writer`. `is_new`: it arrived after this process was first in sync with the stream."""

    def __call__(self, writer: str, key: str, event: KubeEvent, *, is_new: bool) -> None: ...


def follow_events(bus: Bus, writer: str, take: EventHandler) -> None:
    """Call `take` with each Event of `writer`. Call this before the bus is started."""
    is_new = False  # the first snapshot arrives before the first notice that we are in sync

    def on_change(change: _EventChange) -> None:
        nonlocal is_new
        match change:
            case Put(key, event):
                take(writer, key, event, is_new=is_new)
            case Freshness(stale=False):
                is_new = True

    bus.follow(events_of(writer), on_change)


class EventIntake:
    """Collects the Events of all services, and owns `events/status`. `sink` None = there is no API server. Create it
    before the bus starts."""

    def __init__(self, context: Context, sink: EventSink | None) -> None:
        bus, clock = context.bus, context.clock
        self._node_name, self._sink = context.config.node_name, sink
        self._recorder = EventRecorder(bus.own(events_of("status")), clock)
        self._log = EventLog(since=rfc3339_micro(clock.wall() - OVERLAP_SECONDS))
        for service in SERVICES:
            if service != "status":  # our own Events are taken when they are recorded
                follow_events(bus, service, self._take)

    def record_node_event(self, reason: str, message: str, kind: str = "Normal") -> None:
        """Record an Event of our Node."""
        event = KubeEvent(type=kind, reason=reason, message=message, kind="Node", name=self._node_name)
        self._take("status", reason, self._recorder.record(event), is_new=True)

    def _take(self, writer: str, key: str, event: KubeEvent, *, is_new: bool) -> None:
        line = self._log.line(writer, key, event, is_new=is_new)
        if line is not None:
            log.log(logging.INFO if event.type == "Normal" else logging.WARNING, "Event occurred: %s", line)
        if self._sink is not None:
            self._sink.offer(writer, key, event, is_new=is_new)
