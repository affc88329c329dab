"""Decides when something of a pod may be unmounted or removed, and which pod directories are orphans (volumes.md 7);
pure."""

from dataclasses import dataclass, field

from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld

# Seconds for which a pod must stay unknown before its directory is an orphan: a directory may appear before the entry
# of its pod reaches this process, and a podsync that lost its records may find a pod again in the runtime.
ORPHAN_GRACE_SECONDS = 2.0


@dataclass
class Orphans:
    """The pods on disk that are in no complete and fresh list, with the monotonic moment since when."""

    _unknown_since: dict[str, float] = field(default_factory=dict)

    def may_unmount(self, uid: str, desired: DesiredStateOfWorld, now: float) -> bool:
        """Return whether what this pod no longer needs may be unmounted."""
        if uid in desired.pods or not desired.exhaustive:
            self._unknown_since.pop(uid, None)
            return desired.exhaustive  # a newer entry of a listed pod may not have arrived yet
        if uid in desired.withdrawn:
            return True
        return now - self._unknown_since.setdefault(uid, now) >= ORPHAN_GRACE_SECONDS

    def forget(self, uid: str) -> None:
        """Forget a pod of which nothing is left."""
        self._unknown_since.pop(uid, None)

    def next_at(self, now: float) -> float | None:
        """Return the monotonic moment when the next pod becomes an orphan; None when no pod is about to."""
        ends = (since + ORPHAN_GRACE_SECONDS for since in self._unknown_since.values())
        return min((end for end in ends if end > now), default=None)
