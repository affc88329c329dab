"""The strategy Watch, bounded: so many open watches for Secrets and ConfigMaps, and spread reads for the rest."""

import logging

from bus.messages.sources import FoundObject
from services.sources.fetched_objects import FetchedObjects
from services.sources.watched_objects import WatchedObjects
from shared.podspec.references import Reference

_log = logging.getLogger(__name__)

# Each watch is a TCP and TLS connection of its own, here and at the API server: 67 KiB and 1.3 ms of CPU here. As one
# stream of a common HTTP/2 connection it would be 3 KiB and 0.14 ms (h2, measured with 90 of each), so that more could
# be watched. Opening one costs two requests, of which the rate limit lets through 50 a second.
WATCHED_AT_MOST = 100


class BoundedObjects:
    """An `ObjectStore`. Who comes first is watched; where a watch becomes free, the longest known of the others is.
    Objects that need no watch, because they are immutable or are not read any more, take no other's place."""

    def __init__(self, watched: WatchedObjects, fetched: FetchedObjects) -> None:
        self._watched, self._fetched = watched, fetched
        self._watched.on_free = self._promote
        self._rest: dict[Reference, None] = {}  # in the order in which they came
        self._said = False

    def register(self, reference: Reference) -> None:
        """Watch it, or read it now and then."""
        if reference in self._watched:
            if self._watched.is_open(reference) or self._has_room or self._watched.is_immutable(reference):
                self._watched.register(reference)
                return
            self._watched.unregister(reference)  # its watch was idle and closed, and others have its place
        elif reference not in self._rest and self._has_room:
            self._watched.register(reference)
            return
        self._read(reference)

    def unregister(self, reference: Reference) -> None:
        """Forget it; another one may be watched instead."""
        self._rest.pop(reference, None)
        self._fetched.unregister(reference)
        self._watched.unregister(reference)
        self._promote()

    async def get(self, reference: Reference, *, fresh: bool) -> FoundObject:
        """The object by the way it is kept."""
        if reference in self._watched and not fresh:
            self.register(reference)  # an idle one is watched again, or read
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
        """Stop every watch and every read."""
        self._watched.on_free = lambda: None
        await self._watched.close()
        await self._fetched.close()

    @property
    def _has_room(self) -> bool:
        return self._watched.open < WATCHED_AT_MOST

    def _read(self, reference: Reference) -> None:
        if not self._said:
            self._said = True
            _log.warning(
                "pods of this node name more than %d Secrets and ConfigMaps: further ones are not watched, but read "
                "again now and then, so that their changes show later",
                WATCHED_AT_MOST,
            )
        self._rest[reference] = None
        self._fetched.register(reference)

    def _promote(self) -> None:
        """Watch what can be watched now."""
        while self._has_room:
            reference = next((each for each in self._rest if not self._fetched.is_immutable(each)), None)
            if reference is None:
                return
            del self._rest[reference]
            self._fetched.unregister(reference)
            self._watched.register(reference)
