"""Decides what has changed in the state of the node, and forms the events for pages. Pure."""

from typing import Any

from services.server.core.pages.node_history import added
from shared.text.json_text import json_bytes

Document = dict[str, Any]  # version, the sections, pods by UID, history
_SECTIONS = ("node", "processes", "troubles", "conditions", "machine", "usage")  # a change has them complete


def changes(before: Document, after: Document) -> Document:
    """Return what a page that shows `before` needs to show `after`: complete sections, the changed pods (None = it is
    gone), the new samples. {} = nothing.
    """
    found = {name: after[name] for name in _SECTIONS if before[name] != after[name]}
    old, new = before["pods"], after["pods"]
    pods = {uid: row for uid, row in new.items() if row is not (known := old.get(uid)) and row != known}
    pods |= dict.fromkeys(old.keys() - new.keys())
    if pods:
        found["pods"] = pods
    if before["history"] is not after["history"] and (samples := added(before["history"], after["history"])):
        found["history"] = samples
    return found


class PageFeed:
    """Has the newest document and its newest change, each encoded once for all pages."""

    def __init__(self) -> None:
        self.number = 0  # of the newest document; 0 = there is none
        self._document: Document = {}
        self._complete = self._change = b""

    def put(self, newest: Document) -> bool:
        """Take a document. Return False when it equals the one before."""
        if self.number:
            if not (changed := changes(self._document, newest)):
                return False
            self._change = _event("change", json_bytes(changed))
        self._document, self._complete = newest, b""
        self.number += 1
        return True

    def complete(self) -> bytes:
        """Return the newest document as JSON."""
        self._complete = self._complete or json_bytes(self._document)
        return self._complete

    def since(self, number: int) -> bytes:
        """Return the event for a page that shows the document with this number: the newest change, or the complete
        document for a page that is further behind. The number must not be the newest.
        """
        return self._change if 0 < number == self.number - 1 else _event("state", self.complete())


def _event(name: str, data: bytes) -> bytes:
    """Return a server-sent event; JSON of orjson has no line break."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
