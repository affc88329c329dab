"""Messages of which status is the owner."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StatusWritten:
    """Stream `status.written`, key: pod UID: the newest status the API accepted (standalone: echoed at once)."""

    uid: str
    version: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """Stream `node.status`, key `node`: the conditions of the node as they are, or would be, in the API."""

    conditions: tuple[dict[str, str], ...]
