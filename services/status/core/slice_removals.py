"""Decides which ResourceSlices of this node are deleted: those of drivers that are not registered (node.md 4.16); pure.

Nothing of it is saved. A process that starts deletes those of all drivers that are not registered by then, so the
slices of a driver that went while no process was there to notice go too. Times are seconds of one monotonic clock.
"""

import math
from collections.abc import Iterable

from msgspec import Struct

GRACE_SECONDS = 30.0  # for a driver that restarts


class Removal(Struct, frozen=True):
    """Has slices to delete: those of `driver`, or where that is "" those of all drivers but `kept`."""

    driver: str = ""
    kept: tuple[str, ...] = ()

    def selector(self, node: str) -> str:
        """Return the field selector of the slices of this node."""
        terms = [f"spec.driver={self.driver}"] if self.driver else [f"spec.driver!={name}" for name in self.kept]
        return ",".join([*terms, f"spec.nodeName={node}"])


class SliceRemovals:
    """Follows which drivers are registered."""

    def __init__(self) -> None:
        self._registered: set[str] = set()
        self._gone: dict[str, float] = {}  # drivers with slices to delete, and since when they are not registered
        self._all_known_since = math.inf  # since when each driver that there is is known to be registered
        self._swept = False  # slices of drivers that no process has seen are deleted

    @property
    def has_drivers(self) -> bool:
        """Return whether this node has or had a driver."""
        return bool(self._registered or self._gone)

    def registered(self, driver: str) -> None:
        """Note that the driver is registered, and listens."""
        self._registered.add(driver)
        self._gone.pop(driver, None)

    def deregistered(self, driver: str, now: float) -> None:
        """Note that the driver is not registered any more, or does not listen."""
        self._registered.discard(driver)
        self._gone.setdefault(driver, now)

    def set_known(self, known: bool, now: float) -> None:
        """Note whether every driver that there is is known."""
        self._all_known_since = min(self._all_known_since, now) if known else math.inf

    def due(self, now: float) -> list[Removal]:
        """Return what is to be deleted now."""
        return [removal for removal, moment in self._removals() if moment <= now]

    def next_due(self, now: float) -> float:
        """Return when the next grace ends; infinity = none is under way."""
        return min((moment for _, moment in self._removals() if moment > now), default=math.inf)

    def done(self, removal: Removal, began: float) -> None:
        """Note that these slices are deleted, by a request that began then: not those of a driver that has returned and
        gone again since."""
        if removal.driver:
            if self._gone.get(removal.driver, math.inf) < began:
                del self._gone[removal.driver]
        else:
            self._swept = True

    def _removals(self) -> Iterable[tuple[Removal, float]]:
        if self._all_known_since == math.inf:
            return
        if not self._swept:
            kept = tuple(sorted({*self._registered, *self._gone}))
            yield Removal(kept=kept), self._all_known_since + GRACE_SECONDS
        for driver, since in sorted(self._gone.items()):
            yield Removal(driver), since + GRACE_SECONDS
