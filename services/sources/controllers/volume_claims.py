"""Reads PersistentVolumeClaims that pods name and the PersistentVolumes bound to them, again until both are bound.

The node authorizer permits a node to get single claims and volumes but not to watch them, so a change is found by a
read. A claim that is not bound is read again with a short back-off, a bound one each sync period. Each of the two kinds
has a rate of its own, so that a pod which waits for its claim does not wait longer because many others are bound.
"""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject
from services.sources.controllers.api_server import ApiServer, RetryRequestError, WaitEnd
from services.sources.controllers.live_read import MAX_WAIT_SECONDS, live_read
from services.sources.controllers.read_places import ReadPlaces
from services.sources.controllers.referenced_objects import effective_qps
from services.sources.core.api_objects import metadata_text
from services.sources.core.bound_claim import is_settled, volume_name
from services.sources.core.desired_pods import MergeChange, PodDesired, PodRemoved
from shared.config.effective import EffectiveConfig
from shared.kube import paths
from shared.podspec.references import claim_names
from shared.time.backoff import Backoff

CLAIM_KINDS = ("PersistentVolumeClaim", "PersistentVolume")
UNBOUND = Backoff(initial=0.25, cap=2.0)
MAX_READS = 8  # at the same time
# Of all claims together: the more claims there are, the more rarely each is read. A bound claim takes two reads.
BOUND_READS_PER_SECOND = 10.0
UNBOUND_READS_SHARE = 0.4  # of the rate limit of sources: 24 claims are each read within 2 s at 30 requests a second
OUTAGE_PAUSE_SECONDS = 30.0  # or until the API server answers again
SPREAD_SECONDS = 1.0  # over which claims are read after an outage

Name = tuple[str, str]  # namespace, name


@dataclass(eq=False)
class _Claim:
    namespace: str
    name: str
    pods: set[str] = field(default_factory=set)  # UIDs
    claim: FoundObject | None = None
    volume: FoundObject | None = None  # of the PersistentVolume that the claim names
    is_read: asyncio.Event = field(default_factory=asyncio.Event)  # set after a read since the newest pod or request
    claim_error: str = ""  # of that read; "" = the known claim is no older than the newest pod
    volume_error: str = ""
    nudged: asyncio.Event = field(default_factory=asyncio.Event)
    following: "asyncio.Task[None] | None" = None

    @property
    def volume_name(self) -> str:
        return volume_name(self.claim.object if self.claim is not None else None)

    def nudge(self) -> None:
        """Let the claim be read again now."""
        self.is_read.clear()
        self.nudged.set()


class VolumeClaims:
    """Reads each claim in a task of its own, and publishes the versions in `objects.changed`."""

    def __init__(self, config: EffectiveConfig, api: ApiServer, stream: OwnedStream[ChangedObject]) -> None:
        self._api, self._stream, self._period = api, stream, config.sync_frequency
        self._claims: dict[Name, _Claim] = {}
        self._by_pod: dict[str, frozenset[Name]] = {}
        self._by_volume: dict[str, _Claim] = {}  # name of a PersistentVolume -> the claim that names it
        self._bound: set[_Claim] = set()  # claims with a volume that names them
        self._unbound_rate = UNBOUND_READS_SHARE * effective_qps(config)
        self._places = ReadPlaces(MAX_READS, lambda: bool(api.away))

    def on_pod(self, change: MergeChange) -> None:
        """Follow the claims of a pod that is about to be published or removed."""
        match change:
            case PodDesired(desired):
                namespace = str((desired.pod.get("metadata") or {}).get("namespace") or "")
                self._set_claims(desired.uid, frozenset((namespace, name) for name in claim_names(desired.pod)))
            case PodRemoved(uid):
                self._set_claims(uid, frozenset())

    async def get(self, kind: str, namespace: str, name: str, *, fresh: bool) -> FoundObject:
        """Return the claim, or the volume that a claim names, as it was last read, or why there is none. A read that
        began before the newest pod came does not count, because the claim may have been made again for that pod."""
        of_claim = kind == "PersistentVolumeClaim"
        claim = self._claims.get((namespace, name)) if of_claim else self._by_volume.get(name)
        if claim is None:
            return FoundObject(object=None, error=f'object "{namespace}"/"{name}" not registered')
        if fresh:
            claim.nudge()
        if not self._api.is_outage:
            with contextlib.suppress(TimeoutError, RetryRequestError):
                async with asyncio.timeout(MAX_WAIT_SECONDS), self._api.waiting(WaitEnd.OUTAGE):
                    await claim.is_read.wait()
        found = claim.claim if of_claim else claim.volume
        error = claim.claim_error if of_claim else claim.volume_error
        if found is None or error or not claim.is_read.is_set():
            late = f"{kind.lower()} {name}: timed out waiting for the API server"
            return FoundObject(object=None, error=error or self._api.away or late)
        return found

    async def close(self) -> None:
        """Stop every read."""
        following = [claim.following for claim in self._claims.values() if claim.following is not None]
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)

    def _set_claims(self, uid: str, names: frozenset[Name]) -> None:
        """Set the claims that the pod names now."""
        before = self._by_pod.pop(uid, frozenset())
        if names:
            self._by_pod[uid] = names
        for name in names - before:
            claim = self._claims.setdefault(name, _Claim(*name))
            claim.pods.add(uid)
            claim.nudge()  # the pod may rely on something newer than what was read
            if claim.following is None:
                what = f"claim {claim.namespace}/{claim.name}"
                claim.following = asyncio.create_task(self._follow(claim), name=what)
        for name in before - names:
            claim = self._claims[name]
            claim.pods.discard(uid)
            if not claim.pods:
                self._forget(claim)

    def _forget(self, claim: _Claim) -> None:
        del self._claims[claim.namespace, claim.name]
        self._bound.discard(claim)
        if claim.following is not None:
            claim.following.cancel()
        self._stream.delete(_claim_key(claim), "no pod names it")
        self._names_volume(claim, claim.volume_name, "")

    def _names_volume(self, claim: _Claim, before: str, now: str) -> None:
        if before and self._by_volume.get(before) is claim:
            del self._by_volume[before]
            self._stream.delete(_volume_key(before), "no claim names it")
        if now:
            self._by_volume.setdefault(now, claim)

    async def _follow(self, claim: _Claim) -> None:
        reads = 0  # reads in a row that found the claim unbound
        while True:
            while self._api.is_outage and claim.claim is not None:
                await self._api.pause(OUTAGE_PAUSE_SECONDS, interruptible=True, spread=SPREAD_SECONDS)
            claim.nudged.clear()
            await self._places.acquire()
            end = self._places.begin()
            try:
                await self._read(claim)
            finally:
                end()
            if not claim.nudged.is_set():
                claim.is_read.set()
            found = (found.object if found is not None else None for found in (claim.claim, claim.volume))
            if is_settled(*found) and not claim.claim_error and not claim.volume_error:
                reads = 0
                self._bound.add(claim)
                wait = max(self._period * random.uniform(1.0, 1.5), 2 * len(self._bound) / BOUND_READS_PER_SECOND)
            else:
                reads += 1
                self._bound.discard(claim)
                unbound = len(self._claims) - len(self._bound)
                wait = max(UNBOUND.delay(reads), unbound / self._unbound_rate)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await claim.nudged.wait()

    async def _read(self, claim: _Claim) -> None:
        """Read the claim and its volume. Earlier answers stay while the API server does not answer."""
        path = paths.persistent_volume_claim(claim.namespace, claim.name)
        found = await live_read(self._api, self._api.clients.objects, path, may_lag=True)
        before = claim.volume_name
        if found.object is not None or found.not_found or _has_none(claim.claim):
            claim.claim = found
        if claim.volume_name != before:
            claim.volume = None
            self._names_volume(claim, before, claim.volume_name)
        is_first = not claim.is_read.is_set()  # the first read since the newest pod came
        claim.claim_error = _failure(found) if is_first or claim.claim_error else ""
        volume_error = ""
        if name := claim.volume_name:
            path = paths.persistent_volume(name)
            volume = await live_read(self._api, self._api.clients.objects, path, may_lag=True)
            if volume.object is not None or volume.not_found or _has_none(claim.volume):
                claim.volume = volume
                self._publish(_volume_key(name), volume)
            volume_error = _failure(volume)
        claim.volume_error = volume_error if is_first or claim.volume_error else ""
        self._publish(_claim_key(claim), found)

    def _publish(self, key: str, found: FoundObject) -> None:
        if found.object is not None or found.not_found:
            version = metadata_text(found.object, "resourceVersion")
            self._stream.put(key, ChangedObject(resource_version=version), "read from the API server")


def _failure(found: FoundObject) -> str:
    """Return why the API server did not answer, "" = it did."""
    return "" if found.object is not None or found.not_found else found.error


def _has_none(found: FoundObject | None) -> bool:
    return found is None or found.object is None


def _claim_key(claim: _Claim) -> str:
    return f"PersistentVolumeClaim/{claim.namespace}/{claim.name}"


def _volume_key(name: str) -> str:
    return f"PersistentVolume//{name}"
