"""Decides which Kubernetes Events are new, and makes the line of each in the log. Without an API server, Events are
only in the log."""

from collections import OrderedDict
from dataclasses import dataclass, field

from bus.messages.event import KubeEvent

MAX_REMEMBERED_EVENTS = 2000


@dataclass
class EventLog:
    """The events that were logged. `since`: RFC3339 with microseconds; the earlier process logged those before it.

    Only the events of a stream's first snapshot are compared with `since`. Later ones are new whatever their time is,
    because clocks are set back and forth.
    """

    since: str
    _logged: OrderedDict[tuple[str, str, KubeEvent], None] = field(default_factory=OrderedDict)

    def line(self, writer: str, key: str, event: KubeEvent, *, is_new: bool) -> str | None:
        """Return the line for an event of this writer, None if it was logged before. `is_new`: it came after the first
        snapshot."""
        identity = (writer, key, event)
        if identity in self._logged or (not is_new and event.time and event.time < self.since):
            return None
        self._logged[identity] = None
        while len(self._logged) > MAX_REMEMBERED_EVENTS:
            self._logged.popitem(last=False)
        name = f"{event.namespace}/{event.name}" if event.namespace else event.name
        parts = [f"type={event.type} reason={event.reason} object={event.kind}/{name or '-'}"]
        if event.uid:
            parts.append(f"uid={event.uid}")
        if event.field_path:
            parts.append(f"fieldPath={event.field_path}")
        text = " ".join(event.message.split())
        return f'{" ".join(parts)} message="{text}" from={writer} at={event.time or "-"}'
