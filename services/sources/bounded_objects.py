"""The strategy Watch, bounded: watches for so many Secrets and ConfigMaps, and reads now and then for the rest."""

import logging

from bus.messages.sources import FoundObject
from services.sources.fetched_objects import FetchedObjects
from services.sources.watched_objects import WatchedObjects
from shared.podspec.references import Reference

_log = logging.getLogger(__name__)

# Each watch is a TCP and TLS connection of its own, here and at the API server, with some 100 KiB of buffers here; and
# after an outage each costs two requests, of which the rate limit lets through 50 a second: 100 are level within 4 s.
WATCHED_AT_MOST = 100


class BoundedObjects:
    """An `ObjectStore`. Who comes first is watched; where a watch becomes free, the longest known of the others is."""

    def __init__(self, watched: WatchedObjects, fetched: FetchedObjects) -> None:
        self._watched, self._fetched = watched, fetched
        self._rest: dict[Reference, None] = {}  # in the order in which they came
        self._said = False

    def register(self, reference: Reference) -> None:
        """Watch it, or read it when it is asked for."""
        if reference in self._watched or (reference not in self._rest and len(self._watched) < WATCHED_AT_MOST):
            self._watched.register(reference)
            return
        if not self._said:
            self._said = True
            _log.warning(
                "pods of this node name more than %d Secrets and ConfigMaps: further ones are not watched, but read "
                "again when they are used and their time to live is over, so that their changes show later",
                WATCHED_AT_MOST,
            )
        self._rest[reference] = None
        self._fetched.register(reference)

    def unregister(self, reference: Reference) -> None:
        """Forget it; another one may be watched instead."""
        self._rest.pop(reference, None)
        self._fetched.unregister(reference)
        self._watched.unregister(reference)
        if self._rest and len(self._watched) < WATCHED_AT_MOST:
            oldest = next(iter(self._rest))
            del self._rest[oldest]
            self._fetched.unregister(oldest)
            self._watched.register(oldest)

    async def get(self, reference: Reference, *, fresh: bool) -> FoundObject:
        """The object by the way it is kept."""
        if reference in self._rest:
            return await self._fetched.get(reference, fresh=fresh)
        return await self._watched.get(reference, fresh=fresh)

    def tells_by_itself(self, reference: Reference) -> bool:
        """Those that are watched."""
        return reference in self._watched

    def sweep(self) -> None:
        """Some seconds have passed."""
        self._watched.sweep()

    async def close(self) -> None:
        """Stop every watch."""
        await self._watched.close()
