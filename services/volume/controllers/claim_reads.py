"""Reads the PersistentVolumeClaims, PersistentVolumes and CSIDrivers that volumes depend on through sources: each when
a pod first needs it, and again when `objects.changed` shows another version.

A pod gets only a claim and a PersistentVolume whose read began after the pod was admitted: the claim may have been made
again since another pod read it, and then its name leads to another volume (volumes.md 2.5). What a pod has received
stays until another answer arrives. A request that sources did not answer, or answered with an error that no event
ends, is repeated with a back-off.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.volume.adapters.cluster_content import ClusterContent
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import FailureKind, FoundObject
from services.volume.core.specs.volume_claims import CLAIM, CSI_DRIVER, VOLUME
from shared.time.backoff import Backoff

log = logging.getLogger(__name__)

RETRIES = Backoff(initial=0.5, cap=10.0)


@dataclass(eq=False)
class _Read:
    """The reads of one object.

    `pods`: the UIDs of the pods that need it, never empty; `unserved`: those that came after the read began whose
    answer this is; `late`: those that came after the read began that is under way.
    """

    pods: set[str] = field(default_factory=set)
    unserved: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    answer: FoundObject | None = None
    failure: str = ""  # of the last read; "" = it was answered
    reading: "asyncio.Task[None] | None" = None


class ClaimReads:
    """Keeps the objects that volumes depend on. `on_read` is called with the UIDs of the pods whose volumes depend on
    what was read."""

    def __init__(self, content: ClusterContent) -> None:
        self.on_read: Callable[[Iterable[str]], None] = lambda _: None
        self._content = content
        self._reads: dict[ObjectKey, _Read] = {}
        self._keys: dict[str, set[ObjectKey]] = {}  # by the UID of a pod that needs them
        self._failures: Counter[str] = Counter()  # how many reads have failed, by the text of the failure

    def find(self, uid: str, key: ObjectKey) -> FoundObject | None:
        """Return the object that a volume of the pod depends on; None = it is being read, and `on_read` follows."""
        read = self._reads.setdefault(key, _Read())
        if uid not in read.pods:
            read.pods.add(uid)
            self._keys.setdefault(uid, set()).add(key)
            if read.answer is None or key.kind != CSI_DRIVER:  # sources watches CSIDrivers, so an answer is the newest
                read.unserved.add(uid)
                read.late.add(uid)
                if read.reading is None:
                    self._request(key, read)
        return None if uid in read.unserved else read.answer

    def on_object(self, key: str, version: str) -> None:
        """Read the object with this key in `objects.changed` again, unless its version is known."""
        kind, namespace, name = key.split("/", 2)
        changed = ObjectKey(kind, namespace, name)
        read = self._reads.get(changed) if kind in (CLAIM, VOLUME, CSI_DRIVER) else None
        if read is not None:
            answer = read.answer
            if answer is None or answer.object is None or answer.version != version:
                self._request(changed, read)

    def reread(self, key: ObjectKey) -> None:
        """Read an object that volumes depend on from the API server itself, because this node has written to it."""
        if (read := self._reads.get(key)) is not None:
            self._request(key, read, fresh=True)

    def forget(self, uid: str) -> None:
        """Forget a pod, which needs none of its volumes any more."""
        for key in self._keys.pop(uid, ()):
            read = self._reads[key]
            for pods in (read.pods, read.unserved, read.late):
                pods.discard(uid)
            if not read.pods:
                del self._reads[key]
                self._count(read, "")
                if read.reading is not None:
                    read.reading.cancel()

    async def close(self) -> None:
        """Cancel the requests under way."""
        tasks = [read.reading for read in self._reads.values() if read.reading is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _request(self, key: ObjectKey, read: _Read, *, fresh: bool = False) -> None:
        """Start a read. It replaces one that is under way, which may return an older version."""
        if read.reading is not None:
            read.reading.cancel()
        read.reading = asyncio.create_task(self._read(key, read, fresh=fresh), name=f"read {key}")

    async def _read(self, key: ObjectKey, read: _Read, *, fresh: bool) -> None:
        failures, due = 0, True
        while due:
            read.late.clear()
            found = await self._content.read(key, fresh=fresh)
            if found.problem is None or found.problem.kind is not FailureKind.UNANSWERED:
                read.answer, read.unserved, fresh = found, set(read.late), False
                self.on_read(tuple(read.pods))
            due = bool(read.late)
            if found.problem is not None and not found.not_found:
                failures, due = failures + 1, True
                self._failed(key, read, found.problem.text)
                await asyncio.sleep(RETRIES.delay(failures))
            elif (failure := read.failure) and not self._count(read, ""):
                log.info("%s: read; no read fails any more with: %s", key, failure)
        read.reading = None

    def _failed(self, key: ObjectKey, read: _Read, failure: str) -> None:
        """Log one line for an outage, however many objects it concerns and however often they are requested."""
        if not read.failure and not self._failures[failure]:
            log.warning("%s: %s", key, failure)
        self._count(read, failure)

    def _count(self, read: _Read, failure: str) -> int:
        """Note how the read fails now; return how many reads still fail as this one did before."""
        before, read.failure = read.failure, failure
        self._failures.update([failure])
        self._failures.subtract([before])
        self._failures = +self._failures  # without those that have ended
        return self._failures[before]
