"""Secrets and ConfigMaps read when they are asked for: the strategies Cache and Get (reference volumes.md 20)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bus.messages.sources import FoundObject
from services.sources.api_server import ApiServer
from services.sources.core.api_objects import metadata_text
from services.sources.core.fetched_object import FetchedObject
from services.sources.live_read import live_read
from services.sources.object_store import Changed
from shared.kube import paths
from shared.podspec.references import Reference


@dataclass
class _Kept:
    known: FetchedObject = field(default_factory=FetchedObject)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)  # who asks at the same time shares one read


class FetchedObjects:
    """`time_to_live`: seconds for which an object read will do, looked up at each read; 0 reads every time."""

    def __init__(self, api: ApiServer, changed: Changed, time_to_live: Callable[[], float]) -> None:
        self._api, self._changed, self._time_to_live = api, changed, time_to_live
        self._kept: dict[Reference, _Kept] = {}

    def register(self, reference: Reference) -> None:
        """The pod may rely on something newer than what is kept."""
        self._kept.setdefault(reference, _Kept()).known.invalidate()

    def unregister(self, reference: Reference) -> None:
        """Forget the object."""
        self._kept.pop(reference, None)

    async def get(self, reference: Reference, *, fresh: bool) -> FoundObject:
        """The kept object while it will do, else a new read; an error is answered even if an older object is kept."""
        kept = self._kept[reference]
        async with kept.reading:
            known, ttl = kept.known, self._time_to_live()
            if fresh or not known.will_do(self._api.clock.monotonic(), ttl):
                # An API server may answer version 0 from its memory, which is all a periodic look needs.
                cached = ttl > 0 and known.object is not None and not fresh
                path = f"{paths.referenced(reference.kind, reference.namespace)}/{reference.name}"
                query = {"resourceVersion": "0"} if cached else None
                found = await live_read(self._api, self._api.clients.objects, path, query, may_lag=True)
                if found.object is None and not found.not_found:
                    return found
                self._take(reference, known, found)
            return FoundObject(object=known.object, not_found=known.object is None, error=known.not_found)

    def tells_by_itself(self, reference: Reference) -> bool:
        """Nothing is read before somebody asks."""
        return False

    def sweep(self) -> None:
        """Nothing runs by itself."""

    async def close(self) -> None:
        """Nothing runs by itself."""

    def _take(self, reference: Reference, known: FetchedObject, found: FoundObject) -> None:
        now = self._api.clock.monotonic()
        if found.object is None:
            known.missed(found.error, now)
        else:
            known.fetched(found.object, now)
        if reference in self._kept:
            self._changed(reference, metadata_text(known.object, "resourceVersion"))
