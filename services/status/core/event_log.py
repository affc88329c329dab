"""Which Kubernetes Events are new, and the line each makes in the log. With no API server the log is all they get."""

from collections import OrderedDict
from dataclasses import dataclass, field

from bus.messages.event import KubeEvent

REMEMBERED = 2000


@dataclass
class EventLog:
    """`since`: RFC3339 with microseconds; what is older was logged by the life before.

    Only what a stream held when this life first saw it is judged by its time. What came later is news whatever its
    time says: clocks are set back and forth.
    """

    since: str
    _said: OrderedDict[tuple[str, str, KubeEvent], None] = field(default_factory=OrderedDict)

    def line(self, writer: str, key: str, event: KubeEvent, *, is_news: bool) -> str | None:
        """The line for an event of this writer; None when it was logged before. `is_news`: it came in this life."""
        identity = (writer, key, event)
        if identity in self._said or (not is_news and event.time and event.time < self.since):
            return None
        self._said[identity] = None
        while len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        name = f"{event.namespace}/{event.name}" if event.namespace else event.name
        parts = [f"type={event.type} reason={event.reason} object={event.kind}/{name or '-'}"]
        if event.uid:
            parts.append(f"uid={event.uid}")
        if event.field_path:
            parts.append(f"fieldPath={event.field_path}")
        text = " ".join(event.message.split())
        return f'{" ".join(parts)} message="{text}" from={writer} at={event.time or "-"}'
