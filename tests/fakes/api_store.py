"""What etcd and the watch cache are to the API server: objects by path, one revision, the history of watches."""

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from shared.kube.interface import ApiStatusError, ApiUnreachableError, WatchEvent
from shared.model.objects import Object
from shared.time.clock import Clock
from shared.time.timestamps import rfc3339
from tests.fakes.api_resources import Selector, Target
from tests.fakes.json_copy import json_copy

_HISTORY = 100_000
_MAX_SECONDS_BEHIND = 3.0


@dataclass(frozen=True)
class Change:
    """One write: the object before (None = it is new) and after (None = it is gone)."""

    revision: int
    key: str
    before: Object | None
    after: Object | None


class ApiStore:
    """Objects and their history. Reads return copies."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.revision = 1
        self.compacted = 0
        self.streams: dict[WatchStream, None] = {}  # in the order they were opened
        self._objects: dict[str, Object] = {}
        self._history: deque[Change] = deque(maxlen=_HISTORY)
        self._uids = itertools.count(1)
        self._cache: tuple[int, dict[str, Object]] | None = None  # None = it has what the store has
        self._moved = asyncio.Event()

    @property
    def cache(self) -> tuple[int, dict[str, Object]]:
        """Revision and objects of the watch cache, which answers requests that give a resourceVersion."""
        return self._cache or (self.revision, self._objects)

    @property
    def is_behind(self) -> bool:
        """The watch cache gets nothing of what is written, and so the watches get nothing."""
        return self._cache is not None

    def fall_behind(self, backup: tuple[int, dict[str, Object]] | None = None) -> None:
        """The watch cache stays as it is now, or was at this backup, until `catch_up`: another API server answers."""
        self._cache = backup or self.backup()

    def catch_up(self) -> None:
        """The watch cache has what the store has."""
        self._cache = None
        self._moved.set()
        for stream in self.streams:
            stream.wake()

    async def reach(self, revision: int) -> None:
        """Wait until the watch cache has reached the revision; 504 where that takes too long."""
        try:
            async with asyncio.timeout(_MAX_SECONDS_BEHIND):
                while self.cache[0] < revision:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            message = f"Timeout: Too large resource version: {revision}, current: {self.cache[0]}"
            raise ApiStatusError(504, "Timeout", message, retry_after=1.0) from None

    def get(self, key: str, *, cached: bool = False) -> Object | None:
        """The object at this path."""
        found = (self.cache[1] if cached else self._objects).get(key)
        return json_copy(found) if found is not None else None

    def below(self, target: Target, *, cached: bool = False) -> Iterator[tuple[str, Object]]:
        """The objects a list path names, in the order of their paths, not copied."""
        resource, objects = target.resource, self.cache[1] if cached else self._objects
        for key in sorted(objects):
            if target.namespace or not resource.namespaced:
                inside = key.startswith(target.key + "/")
            else:
                inside = key.startswith(f"{resource.prefix}/namespaces/") and key.split("/")[-2] == resource.plural
            if inside:
                yield key, objects[key]

    def selected(self, target: Target, selector: Selector, *, cached: bool = False) -> list[Object]:
        """Copies of the selected objects."""
        return [json_copy(obj) for _, obj in self.below(target, cached=cached) if selector.matches(obj)]

    def identity(self) -> Object:
        """The metadata a new object gets."""
        return {
            "uid": str(uuid.UUID(int=(0xAB1E << 112) + (4 << 76) + (2 << 62) + next(self._uids))),
            "creationTimestamp": rfc3339(self.clock.wall()),
        }

    def put(self, key: str, obj: Object) -> Object:
        """Write; an object equal to the present one is no write."""
        before = self._objects.get(key)
        obj = json_copy(obj)
        if before is not None:
            obj["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
            if obj == before:
                return json_copy(before)
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        self._objects[key] = obj
        self._changed(Change(self.revision, key, before, obj))
        return json_copy(obj)

    def remove(self, key: str) -> Object:
        """Delete; the last state with the revision of the deletion."""
        self.revision += 1
        before = self._objects.pop(key)
        self._changed(Change(self.revision, key, before, None))
        return _at(before, self.revision)

    def since(self, revision: int) -> list[Change]:
        """The changes after this revision; 410 when some of them are forgotten."""
        oldest = self._history[0].revision - 1 if self._history else self.revision
        forgotten = max(self.compacted, oldest if len(self._history) == _HISTORY else 0)
        if revision < forgotten:
            raise ApiStatusError(410, "Expired", f"too old resource version: {revision} ({forgotten})")
        return [change for change in self._history if change.revision > revision]

    def compact(self) -> None:
        """Forget all history: a watch from an older revision than now gets 410."""
        self.compacted = self.revision
        self._history.clear()

    def backup(self) -> tuple[int, dict[str, Object]]:
        """What `restore` takes."""
        return self.revision, json_copy(self._objects)

    def restore(self, backup: tuple[int, dict[str, Object]]) -> None:
        """Go back: no history, and revisions count from that of the backup."""
        self.revision, self._objects = backup[0], json_copy(backup[1])
        self._history.clear()
        self.catch_up()

    def _changed(self, change: Change) -> None:
        self._history.append(change)
        self._moved.set()
        for stream in list(self.streams):
            stream.take(change)


def _at(obj: Object, revision: int) -> Object:
    obj = json_copy(obj)
    obj["metadata"]["resourceVersion"] = str(revision)
    return obj


class WatchStream:
    """One watch: an iterator of events that ends after `seconds` of the event loop's time, or with the connection."""

    def __init__(self, store: ApiStore, target: Target, selector: Selector, seconds: float, bookmarks: bool) -> None:
        self.paused = False
        self._store, self._target, self._selector, self._bookmarks = store, target, selector, bookmarks
        self._queue: deque[WatchEvent] = deque()
        self._initial: deque[WatchEvent] = deque()  # from the watch cache, which need not get anything for that
        self._error: Exception | None = None
        self._woken = asyncio.Event()
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._prefix = target.key + "/"
        store.streams[self] = None

    @property
    def resource(self) -> str:
        """What is watched, as "secrets"."""
        return self._target.resource.plural

    def begin(self, resource_version: str) -> None:
        """Read the history from here; "" or "0" begins with what there is."""
        if resource_version in ("", "0"):
            for obj in self._store.selected(self._target, self._selector):
                self._queue.append(WatchEvent("ADDED", obj))
            return
        try:
            for change in self._store.since(int(resource_version)):
                self.take(change)
        except ApiStatusError as error:
            self._error = error

    def begin_with_all(self) -> None:
        """All objects of the watch cache, a bookmark that says so, and what was written since."""
        revision, _ = self._store.cache
        for obj in self._store.selected(self._target, self._selector, cached=True):
            self._initial.append(WatchEvent("ADDED", obj))
        self._initial.append(self._bookmark_at(revision, {"annotations": {"k8s.io/initial-events-end": "true"}}))
        if self._store.is_behind:
            for change in self._store.since(revision):
                self.take(change)

    def take(self, change: Change) -> None:
        """Called by the store after each write."""
        resource = self._target.resource
        if not self._target.namespace and resource.namespaced:
            if not (change.key.startswith(resource.prefix + "/") and change.key.split("/")[-2] == resource.plural):
                return
        elif not change.key.startswith(self._prefix):
            return
        before, after = self._selector.matches(change.before), self._selector.matches(change.after)
        if after:
            assert change.after is not None
            self._push(WatchEvent("MODIFIED" if before else "ADDED", json_copy(change.after)))
        elif before:
            assert change.before is not None
            self._push(WatchEvent("DELETED", _at(change.before, change.revision)))

    def bookmark(self) -> None:
        """Send the revision of this watch, if it requested bookmarks."""
        if self._bookmarks:
            self._push(self._bookmark_at(self._store.revision, {}))

    def _bookmark_at(self, revision: int, more: Object) -> WatchEvent:
        resource, metadata = self._target.resource, {"resourceVersion": str(revision), "creationTimestamp": None}
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata | more}
        return WatchEvent("BOOKMARK", obj)

    def wake(self) -> None:
        """Look again: `paused` has changed."""
        self._woken.set()

    def break_off(self) -> None:
        """The connection is lost; what was not read yet is lost with it."""
        self._queue.clear()
        self._initial.clear()
        self._error = ApiUnreachableError("watch: the connection was lost")
        self._woken.set()

    def close(self) -> None:
        """The client is gone."""
        self._store.streams.pop(self, None)

    def __aiter__(self) -> "WatchStream":
        return self

    async def __anext__(self) -> WatchEvent:
        while True:
            self._woken.clear()
            if self._initial and not self.paused:
                return self._initial.popleft()
            if self._queue and not (self.paused or self._store.is_behind):
                return self._queue.popleft()
            if self._error is not None:
                self.close()
                raise self._error
            left = self._deadline - asyncio.get_running_loop().time()
            if left <= 0 and not self.paused:
                if not self._bookmarks:
                    self.close()
                    raise StopAsyncIteration
                self.bookmark()
                self._bookmarks = False  # the last event
                continue
            try:
                async with asyncio.timeout(left if left > 0 else None):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _push(self, event: WatchEvent) -> None:
        self._queue.append(event)
        self._woken.set()
