"""One Secret or ConfigMap as last fetched, and whether it is still valid: strategy Cache; pure (volumes.md 20)."""

from dataclasses import dataclass

from services.sources.core.api_objects import is_older, metadata_text
from shared.model.objects import Object

DEFAULT_TTL = 60.0  # seconds
TTL = "node.alpha.kubernetes.io/ttl"  # annotation of the node, seconds, written by a controller


def time_to_live(node: Object | None) -> float:
    """Seconds for which a fetched object is valid, from our Node's annotation; 60 where it has none, or a bad one."""
    metadata = (node or {}).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(TTL) if isinstance(annotations, dict) else None
    return float(text) if isinstance(text, str) and text.isdecimal() and len(text) < 10 else DEFAULT_TTL


@dataclass
class FetchedObject:
    """What is known of one object; `not_found` is the API server's text when it has none."""

    object: Object | None = None
    not_found: str = ""
    fetched_at: float = float("-inf")
    history: int = 0  # of the API server's store, that it was fetched from (`ApiServer.history` of the controllers)

    @property
    def immutable(self) -> bool:
        """It can never change."""
        return self.object is not None and self.object.get("immutable") is True

    def will_do(self, now: float, ttl: float, history: int = 0) -> bool:
        """No need to ask the API server, whose store is of this history now."""
        is_known = self.object is not None or bool(self.not_found)
        return is_known and history == self.history and now - self.fetched_at < ttl

    def invalidate(self) -> None:
        """A pod was registered that may rely on something newer: the next read asks the API server itself."""
        self.object, self.not_found, self.fetched_at = None, "", float("-inf")

    def fetched(self, obj: Object, now: float, history: int = 0) -> None:
        """The API server answered a request that was sent while its store was of this history. A version that is older
        than the known one of the same history is not taken, but counts as a look."""
        known = metadata_text(self.object, "resourceVersion") if history == self.history else ""
        if self.object is None or not is_older(metadata_text(obj, "resourceVersion"), known):
            self.object = obj
        self.not_found, self.fetched_at, self.history = "", now, history

    def missed(self, message: str, now: float, history: int = 0) -> None:
        """The API server has no such object."""
        self.object, self.not_found, self.fetched_at, self.history = None, message, now, history
