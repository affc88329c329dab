"""Which mounted volumes are to be set up again: an object changed, a token is due, the sync period is over; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Key = tuple[str, str]  # pod UID, volume


@dataclass
class _State:
    asked: int = 0
    begun: int = 0
    served: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    at: float | None = None


@dataclass
class Refreshes:
    """A request while a refresh runs leads to another refresh: the running one may have read the old object."""

    _states: dict[Key, _State] = field(default_factory=dict)

    def ask(self, key: Key) -> None:
        """Request a refresh of the volume."""
        self._states.setdefault(key, _State()).asked += 1

    def begin(self, key: Key) -> None:
        """A refresh starts; it serves all requests until now."""
        standing = self._states.setdefault(key, _State())
        standing.begun = standing.asked

    def succeeded(self, key: Key, versions: Mapping[str, str], at: float | None) -> None:
        """The refresh has succeeded with these versions of objects; `at`: the monotonic time of the next one by age."""
        standing = self._states.setdefault(key, _State())
        standing.served, standing.versions, standing.at = standing.begun, versions, at

    def forget(self, key: Key) -> None:
        """Forget a volume."""
        self._states.pop(key, None)

    def forget_pod(self, uid: str) -> None:
        """Forget the volumes of a pod."""
        self._states = {key: standing for key, standing in self._states.items() if key[0] != uid}

    def due(self, key: Key, now: float) -> bool:
        """Return whether a refresh is to start, or to be tried again."""
        standing = self._states.get(key)
        if standing is None:
            return False
        return standing.asked > standing.served or (standing.at is not None and standing.at <= now)

    def used(self, key: Key, changed: str) -> str | None:
        """Return the version of an object in the volume's content; None = it was not read yet."""
        standing = self._states.get(key)
        return standing.versions.get(changed) if standing is not None else None

    def next_at(self, now: float) -> float | None:
        """Return when the next volume is due by age."""
        return min((s.at for s in self._states.values() if s.at is not None and s.at > now), default=None)
