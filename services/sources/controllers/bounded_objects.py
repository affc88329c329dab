"""Bounds the strategy Watch: a limited number of open watches for Secrets and ConfigMaps, and spread reads for the
others."""

import logging
from collections import OrderedDict
from collections.abc import Callable

from bus.messages.sources import FoundObject
from services.sources.controllers.fetched_objects import FetchedObjects
from services.sources.controllers.watched_objects import WatchedObjects
from shared.podspec.references import Reference

log = logging.getLogger(__name__)

# Watches are streams of shared HTTP/2 connections, each of which carries 100 or 250, as the API server permits. The
# rate limit of sources bounds their number: by default 30 requests a second, so that 400 watches are resumed within 12
# s after an outage. At the start each costs a list and a watch in place of one read, and 1500 Secrets are mounted
# within 95 s.
MAX_WATCHES = 400
# Without HTTP/2 each watch has a TCP and TLS connection of its own, which costs 70 KiB here in place of 7, and as much
# at the API server.
MAX_WATCHES_WITHOUT_HTTP2 = 100


class BoundedObjects:
    """An `ObjectStore` that watches the first objects and reads the others. When a watch becomes free, one of the
    others is watched, if no read of it waits. Objects that need no watch, because they are immutable or not read any
    more, take no place. `shares_connection`: whether the API server speaks HTTP/2."""

    def __init__(self, watched: WatchedObjects, fetched: FetchedObjects, shares_connection: Callable[[], bool]) -> None:
        self._shares_connection = shares_connection
        self._watched, self._fetched = watched, fetched
        self._watched.on_free, self._fetched.on_idle = self._promote, self._was_read
        self._rest: set[Reference] = set()
        # The objects of the rest that are watched next. One that is being read at its turn, or is immutable, is
        # removed; it is added again after its read, or with the next pod that names it.
        self._next: OrderedDict[Reference, None] = OrderedDict()
        self._has_logged = False

    def register(self, reference: Reference) -> None:
        """Watch the object, or read it now and then."""
        if reference in self._watched:
            if not self._yields(reference):
                self._watched.register(reference)
        elif reference not in self._rest and self._has_room:
            self._watched.register(reference)
        else:
            self._read(reference)

    def unregister(self, *references: Reference) -> None:
        """Forget the objects; others may be watched instead."""
        for reference in references:
            self._rest.discard(reference)
            self._next.pop(reference, None)
        self._fetched.unregister(*references)
        for reference in references:  # done last, because an object that stays takes the place of each watch that ends
            self._watched.unregister(reference)

    async def get(self, reference: Reference, *, fresh: bool) -> FoundObject:
        """Return the object, from its watch or its reads."""
        if reference in self._watched and not fresh:
            self._yields(reference)
        if reference in self._rest:
            return await self._fetched.get(reference, fresh=fresh)
        return await self._watched.get(reference, fresh=fresh)

    def sends_first_version(self, reference: Reference) -> bool:
        """Return whether the object is watched, so that its first version comes without a request."""
        return reference in self._watched

    def sweep(self) -> None:
        """Close idle watches. Where the API server speaks no HTTP/2 any more, read the objects beyond the limit."""
        self._watched.sweep()
        for reference in self._watched.newest_open(max(0, self._watched.open - self._limit)):
            self._watched.unregister(reference)
            self._read(reference)

    async def close(self) -> None:
        """Stop every watch and every read."""
        self._watched.on_free, self._fetched.on_idle = lambda: None, lambda _: None
        await self._watched.close()
        await self._fetched.close()

    @property
    def _has_room(self) -> bool:
        return self._watched.open < self._limit

    @property
    def _limit(self) -> int:
        return MAX_WATCHES if self._shares_connection() else min(MAX_WATCHES, MAX_WATCHES_WITHOUT_HTTP2)

    def _yields(self, reference: Reference) -> bool:
        """Return whether the object is read from now on, because its idle watch was closed and others have its
        place."""
        if self._watched.is_open(reference) or self._has_room or self._watched.is_immutable(reference):
            return False
        self._watched.unregister(reference)
        self._read(reference)
        return True

    def _read(self, reference: Reference) -> None:
        if not self._has_logged:
            self._has_logged = True
            log.warning(
                "pods of this node name more than %d Secrets and ConfigMaps: further ones are not watched, but read "
                "again now and then, so that their changes show later",
                self._limit,
            )
        self._rest.add(reference)
        self._next.setdefault(reference)
        self._fetched.register(reference)

    def _was_read(self, reference: Reference) -> None:
        if not self._fetched.is_immutable(reference):
            self._next.setdefault(reference)
            self._promote()

    def _promote(self) -> None:
        """Watch objects of the rest while there is room."""
        while self._has_room and self._next:
            reference, _ = self._next.popitem(last=False)
            if self._fetched.is_being_read(reference) or self._fetched.is_immutable(reference):
                continue
            read = self._fetched.known(reference)
            self._rest.discard(reference)
            self._fetched.unregister(reference)
            self._watched.register(reference, read)
