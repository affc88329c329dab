"""Keeps one Secret or ConfigMap as last fetched, and decides whether it is valid: strategy Cache; pure (volumes.md
20)."""

from dataclasses import dataclass

from services.sources.core.api_objects import is_older, metadata_text
from shared.model.fields import dictionary, text
from shared.model.objects import Object

DEFAULT_TTL_SECONDS = 60.0
TTL = "node.alpha.kubernetes.io/ttl"  # annotation of the node, seconds, written by a controller


def time_to_live(node: Object | None) -> float:
    """Return the seconds for which a fetched object is valid, from our Node's annotation; 60 where it has none, or an
    invalid one."""
    annotations = dictionary(dictionary((node or {}).get("metadata")).get("annotations"))
    seconds = text(annotations.get(TTL))
    return float(seconds) if seconds.isdecimal() and len(seconds) < 10 else DEFAULT_TTL_SECONDS


@dataclass
class FetchedObject:
    """One object as it was last fetched. `not_found`: the API server's text when it has none."""

    object: Object | None = None
    not_found: str = ""
    fetched_at: float = float("-inf")
    history: int = 0  # of the API server's store from which it was fetched (`ApiServer.history` of the controllers)

    @property
    def immutable(self) -> bool:
        """Return whether the object can never change."""
        return self.object is not None and self.object.get("immutable") is True

    def is_valid(self, now: float, ttl: float, history: int = 0) -> bool:
        """Return whether the object need not be fetched from the API server, whose store has this history now."""
        is_known = self.object is not None or bool(self.not_found)
        return is_known and history == self.history and now - self.fetched_at < ttl

    def invalidate(self) -> None:
        """Drop the object, because a pod was registered that may need a newer version."""
        self.object, self.not_found, self.fetched_at = None, "", float("-inf")

    def fetched(self, obj: Object, now: float, history: int = 0) -> None:
        """Store the answer to a request that was sent while the API server's store had this history. A version that is
        older than the known one of the same history is not stored, but counts as fetched."""
        known = metadata_text(self.object, "resourceVersion") if history == self.history else ""
        if self.object is None or not is_older(metadata_text(obj, "resourceVersion"), known):
            self.object = obj
        self.not_found, self.fetched_at, self.history = "", now, history

    def missed(self, message: str, now: float, history: int = 0) -> None:
        """Store that the API server has no such object."""
        self.object, self.not_found, self.fetched_at, self.history = None, message, now, history
