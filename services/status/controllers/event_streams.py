"""Follows the Events of another service, and marks each as new or as from before this process."""

from typing import Protocol

from bus.interface import Bus, Change, Freshness, Put
from bus.messages.event import KubeEvent
from bus.messages.streams import events_of


class EventHandler(Protocol):
    """Takes an Event of `writer`. `is_new`: it came after this process was first in sync with the stream."""

    def __call__(self, writer: str, key: str, event: KubeEvent, *, is_new: bool) -> None: ...


def follow_events(bus: Bus, writer: str, take: EventHandler) -> None:
    """Call before the bus is started."""
    is_new = False  # the first snapshot comes before the first notice that we are in sync

    def on_change(change: Change[KubeEvent]) -> None:
        nonlocal is_new
        match change:
            case Put(key, event):
                take(writer, key, event, is_new=is_new)
            case Freshness(stale=False):
                is_new = True

    bus.follow(events_of(writer), on_change)
