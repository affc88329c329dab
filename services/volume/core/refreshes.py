"""Which mounted volumes are to be looked at again: an object changed, a token grows old, time has passed; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Key = tuple[str, str]  # pod UID, volume


@dataclass
class _Standing:
    asked: int = 0
    begun: int = 0
    served: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    at: float | None = None


@dataclass
class Refreshes:
    """Asking while a refresh is under way leads to another one: it may have read the old object."""

    _standings: dict[Key, _Standing] = field(default_factory=dict)

    def ask(self, key: Key) -> None:
        """The volume is to be refreshed."""
        self._standings.setdefault(key, _Standing()).asked += 1

    def begin(self, key: Key) -> None:
        """A refresh starts; it serves all that asked until now."""
        standing = self._standings.setdefault(key, _Standing())
        standing.begun = standing.asked

    def succeeded(self, key: Key, versions: Mapping[str, str], at: float | None) -> None:
        """It went well, with these versions of objects; `at` is the moment (monotonic) of the next one by age."""
        standing = self._standings.setdefault(key, _Standing())
        standing.served, standing.versions, standing.at = standing.begun, versions, at

    def forget(self, key: Key) -> None:
        """The volume is gone."""
        self._standings.pop(key, None)

    def forget_pod(self, uid: str) -> None:
        """Nothing of the pod is left."""
        self._standings = {key: standing for key, standing in self._standings.items() if key[0] != uid}

    def due(self, key: Key, now: float) -> bool:
        """A refresh is to start, or to be tried again."""
        standing = self._standings.get(key)
        if standing is None:
            return False
        return standing.asked > standing.served or (standing.at is not None and standing.at <= now)

    def used(self, key: Key, changed: str) -> str | None:
        """The version of an object in the volume's content; None = it was not read yet."""
        standing = self._standings.get(key)
        return standing.versions.get(changed) if standing is not None else None

    def next_at(self, now: float) -> float | None:
        """When the next volume falls due by age."""
        return min((s.at for s in self._standings.values() if s.at is not None and s.at > now), default=None)
