"""Keeps Secrets and ConfigMaps in step by one watch each: the strategy Watch (volumes.md 20).

A watch without requests for a while is closed, and opened again by the next request. The watch of an object that a
volume shows stays open, because followers receive its changes only through the watch.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from typing import Any

from bus.messages.sources import FoundObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.list_watch import ListWatch
from services.sources.controllers.live_read import live_read
from services.sources.controllers.object_store import Changed, Failed, describe
from services.sources.core.api_objects import metadata_text
from services.sources.core.reflector import FROM_CACHE, Reflector
from shared.kube import paths
from shared.model.objects import Object
from shared.podspec.references import Reference

log = logging.getLogger(__name__)

MIN_WATCH_SECONDS = 1800.0  # long, because single objects change rarely
MAX_FIRST_SYNC_SECONDS = 1.0  # for which a request waits until the object is listed


class _Watched:
    """One object and its watch, which may be closed."""

    def __init__(
        self,
        api: ApiServer,
        reference: Reference,
        changed: Changed,
        failed: Failed,
        opened: Callable[[bool], None],
        read: Object | None,
    ) -> None:
        self._api, self.reference, self._changed, self._failed = api, reference, changed, failed
        self._opened = opened  # called with True when a watch begins, and with False when it is closed
        self.read = read  # the object as it was read before there was a watch, until the watch has brought it
        self.object: Object | None = None
        self.read_at = api.clock.monotonic()
        self._running: asyncio.Task[None] | None = None
        self.synced = asyncio.Event()
        self.start()

    @property
    def immutable(self) -> bool:
        """Return whether the object can never change, so that it need not be watched."""
        return self.object is not None and self.object.get("immutable") is True

    @property
    def is_open(self) -> bool:
        """Return whether there is a watch."""
        return self._running is not None

    def start(self) -> None:
        """Open the watch, unless it is open or the object can never change."""
        if self._running is not None or self.immutable:
            return
        watch = ListWatch(
            api=self._api,
            client=self._api.clients.objects,
            what=describe(self.reference),
            path=paths.referenced(self.reference.kind, self.reference.namespace),
            selector=f"metadata.name={self.reference.name}",
            on_list=self._on_list,
            on_change=self._on_change,
            on_failure=lambda: self._failed(self.reference),
            reflector=Reflector(
                shortest_watch=MIN_WATCH_SECONDS,
                oldest=metadata_text(self.object or self.read, "resourceVersion") or FROM_CACHE,
            ),
        )
        self.synced = watch.synced
        self._running = asyncio.create_task(watch.run(), name=f"watch {describe(self.reference)}")
        self._running.add_done_callback(self._ended)
        self._opened(True)

    def stop(self) -> None:
        """Close the watch; the object must be read again, unless it is immutable."""
        self.read = None
        if self._running is not None:
            self._running.cancel()
            self._running = None
            self._api.forget(describe(self.reference))
            self._opened(False)

    def _on_list(self, items: list[Any]) -> None:
        ours = [item for item in items if metadata_text(item, "name") == self.reference.name]
        if items and not ours:
            log.warning("%s: the API server sent something else; ignored", describe(self.reference))
            return
        self._take(ours[0] if ours else None)

    def _on_change(self, kind: str, item: Any) -> None:
        if metadata_text(item, "name") != self.reference.name:
            log.warning("%s: the watch brought something else; ignored", describe(self.reference))
            return
        self._take(None if kind == "DELETED" else item)

    def _take(self, obj: Object | None) -> None:
        self.object, self.read = obj, None
        self._changed(self.reference, metadata_text(obj, "resourceVersion"))
        if self.immutable:
            self.synced.set()
            # Stop it later, because the task that this ends is still passing on the list.
            asyncio.get_running_loop().call_soon(self.stop)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: its watch failed: %r", describe(self.reference), error)
            if self._running is task:
                self._running = None  # the next request opens another one
                self._failed(self.reference)
                self._opened(False)


class WatchedObjects:
    """An `ObjectStore` that watches objects. `idle_after`: seconds without a request until a watch is closed;
    `is_shown`: whether some volume shows the object."""

    def __init__(
        self,
        api: ApiServer,
        changed: Changed,
        failed: Failed,
        *,
        idle_after: float,
        is_shown: Callable[[Reference], bool],
    ) -> None:
        self._api, self._changed, self._failed = api, changed, failed
        self._idle_after, self._is_shown = idle_after, is_shown
        self._watched: dict[Reference, _Watched] = {}
        self.open = 0  # the number of open watches
        self.on_free: Callable[[], None] = lambda: None  # called when a watch was closed

    def register(self, reference: Reference, read: Object | None = None) -> None:
        """Watch the object, if it is not watched yet. Until the watch has brought it, `read` is the answer, unless
        another pod comes, which may need a newer version and waits for the watch."""
        if reference not in self._watched:
            self._watched[reference] = _Watched(self._api, reference, self._changed, self._failed, self._opened, read)
            return
        self._watched[reference].read = None
        if self._is_shown(reference):
            self._watched[reference].start()

    def is_open(self, reference: Reference) -> bool:
        """Return whether the object is watched at present."""
        return self._watched[reference].is_open

    def newest_open(self, number: int) -> list[Reference]:
        """Return at most `number` objects with an open watch, the newest first."""
        opened = (reference for reference, watched in reversed(self._watched.items()) if watched.is_open)
        return list(itertools.islice(opened, number))

    def is_immutable(self, reference: Reference) -> bool:
        """Return whether the object was read and can never change."""
        return self._watched[reference].immutable

    def unregister(self, reference: Reference) -> None:
        """Close the watch of the object, and forget it."""
        if (watched := self._watched.pop(reference, None)) is not None:
            watched.stop()

    async def get(self, reference: Reference, *, fresh: bool) -> FoundObject:
        """Return the object that the watch brought; wait a moment for a watch that has just begun."""
        watched, kind = self._watched[reference], reference.kind.lower()
        watched.read_at = self._api.clock.monotonic()
        if fresh:
            path = f"{paths.referenced(reference.kind, reference.namespace)}/{reference.name}"
            return await live_read(self._api, self._api.clients.objects, path, may_lag=True)
        watched.start()
        if watched.read is not None:
            return FoundObject(object=watched.read)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_FIRST_SYNC_SECONDS):
                await watched.synced.wait()
        if not watched.synced.is_set():
            return FoundObject(object=None, error=f"failed to sync {kind} cache: timed out waiting for the condition")
        if watched.object is None:
            return FoundObject(object=None, not_found=True, error=f'{kind} "{reference.name}" not found')
        return FoundObject(object=watched.object)

    def sends_first_version(self, reference: Reference) -> bool:
        """Return whether the object is known here, because its watch sends a first version."""
        return reference in self._watched

    def __contains__(self, reference: Reference) -> bool:
        return reference in self._watched

    def sweep(self) -> None:
        """Close watches without requests."""
        now = self._api.clock.monotonic()
        for reference, watched in list(self._watched.items()):
            if now - watched.read_at >= self._idle_after and not self._is_shown(reference):
                watched.stop()

    def _opened(self, opened: bool) -> None:
        self.open += 1 if opened else -1
        if not opened:
            self.on_free()

    async def close(self) -> None:
        """Stop every watch."""
        for watched in self._watched.values():
            watched.stop()
        self._watched.clear()
        await asyncio.sleep(0)
