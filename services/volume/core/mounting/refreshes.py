"""Decides which mounted volumes are to be set up again, because an object changed, a token is due or the sync period is
over, and whose old files are to be removed; pure."""

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
    old_files_at: float | None = None


@dataclass
class Refreshes:
    """The refreshes that are requested, and those that are due by age. A request while a refresh runs leads to another
    refresh, because the running one may have read the old object."""

    _states: dict[Key, _State] = field(default_factory=dict)

    def ask(self, key: Key) -> None:
        """Request a refresh of the volume."""
        self._states.setdefault(key, _State()).asked += 1

    def begin(self, key: Key) -> None:
        """Note that a refresh starts, which serves all requests until now."""
        state = self._states.setdefault(key, _State())
        state.begun = state.asked

    def succeeded(self, key: Key, versions: Mapping[str, str], at: float | None) -> None:
        """Note that the refresh has succeeded with these versions of objects. `at`: the monotonic time at which the
        next one is due by age."""
        state = self._states.setdefault(key, _State())
        state.served, state.versions, state.at = state.begun, versions, at

    def keeps_old_files(self, key: Key, until: float | None) -> None:
        """Note until which monotonic time old files of the volume stay; None = there are none."""
        self._states.setdefault(key, _State()).old_files_at = until

    def old_files_due(self, key: Key, now: float) -> bool:
        """Return whether old files of the volume are to be removed."""
        state = self._states.get(key)
        return state is not None and state.old_files_at is not None and state.old_files_at <= now

    def forget(self, key: Key) -> None:
        """Forget a volume."""
        self._states.pop(key, None)

    def forget_pod(self, uid: str) -> None:
        """Forget the volumes of a pod."""
        self._states = {key: state for key, state in self._states.items() if key[0] != uid}

    def due(self, key: Key, now: float) -> bool:
        """Return whether a refresh is to start, or to be tried again."""
        state = self._states.get(key)
        if state is None:
            return False
        return state.asked > state.served or (state.at is not None and state.at <= now)

    def used(self, key: Key, changed: str) -> str | None:
        """Return the version of an object in the volume's content; None = it was not read yet."""
        state = self._states.get(key)
        return state.versions.get(changed) if state is not None else None

    def next_at(self, now: float) -> float | None:
        """Return when the next volume is due by age, or the next removal of old files."""
        moments = (moment for state in self._states.values() for moment in (state.at, state.old_files_at))
        return min((moment for moment in moments if moment is not None and moment > now), default=None)
