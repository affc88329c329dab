"""PersistentVolumeClaims, PersistentVolumes and CSIDrivers that volumes rest on, as sources has them: each is requested
when a volume first needs it, and again when `objects.changed` shows another version.

What was read stays until another answer arrives. A request that sources did not answer is repeated with a back-off.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from services.volume.adapters.cluster_content import ClusterContent
from services.volume.core.object_key import ObjectKey
from services.volume.core.payload import FailureKind, FoundObject
from services.volume.core.volume_claims import CLAIM, CSI_DRIVER, VOLUME
from shared.backoff import Backoff

log = logging.getLogger(__name__)

RETRIES = Backoff(initial=0.5, cap=10.0)


class ClaimReads:
    """`on_read` is called with the UIDs of the pods whose volumes rest on what was read."""

    def __init__(self, content: ClusterContent) -> None:
        self.on_read: Callable[[Iterable[str]], None] = lambda _: None
        self._content = content
        self._found: dict[ObjectKey, FoundObject] = {}
        self._pods: dict[ObjectKey, set[str]] = {}  # UIDs of those that need the object; none empty
        self._keys: dict[str, set[ObjectKey]] = {}  # the same by UID
        self._reading: dict[ObjectKey, asyncio.Task[None]] = {}

    def found(self, uid: str, key: ObjectKey) -> FoundObject | None:
        """Return the object that a volume of the pod rests on; None = it is being read, and `on_read` follows."""
        self._pods.setdefault(key, set()).add(uid)
        self._keys.setdefault(uid, set()).add(key)
        if key not in self._found and key not in self._reading:
            self._request(key)
        return self._found.get(key)

    def on_object(self, key: str, version: str) -> None:
        """An object has this version; `key` as in `objects.changed`."""
        kind, namespace, name = key.split("/", 2)
        changed = ObjectKey(kind, namespace, name)
        if kind in (CLAIM, VOLUME, CSI_DRIVER) and changed in self._pods:
            found = self._found.get(changed)
            if found is None or found.object is None or found.version != version:
                self._request(changed)

    def reread(self, key: ObjectKey) -> None:
        """Read an object that volumes rest on from the API server itself: this node has written to it."""
        if key in self._pods:
            self._request(key, fresh=True)

    def forget(self, uid: str) -> None:
        """The pod needs none of its volumes any more."""
        for key in self._keys.pop(uid, ()):
            pods = self._pods[key]
            pods.discard(uid)
            if not pods:
                del self._pods[key]
                self._found.pop(key, None)
                if (reading := self._reading.pop(key, None)) is not None:
                    reading.cancel()

    async def close(self) -> None:
        """Cancel the requests under way."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _request(self, key: ObjectKey, *, fresh: bool = False) -> None:
        """Read it; a request under way may return an older version, and is replaced."""
        if (reading := self._reading.pop(key, None)) is not None:
            reading.cancel()
        self._reading[key] = asyncio.create_task(self._read(key, fresh=fresh), name=f"read {key}")

    async def _read(self, key: ObjectKey, *, fresh: bool) -> None:
        failures = 0
        while True:
            found = await self._content.read(key, fresh=fresh)
            if found.problem is None or found.problem.kind is not FailureKind.UNANSWERED:
                break
            failures += 1
            log.warning("%s: %s", key, found.problem.text)
            await asyncio.sleep(RETRIES.delay(failures))
        self._found[key] = found
        del self._reading[key]
        self.on_read(tuple(self._pods.get(key, ())))
