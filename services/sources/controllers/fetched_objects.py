"""Reads Secrets and ConfigMaps without a watch: by the strategies Cache and Get (volumes.md 20), and where there are
too many to watch.

Each object has at most one read in progress and one waiting, however many services request it, so the queue is at most
as long as the list of objects that the pods of this node name. An object that no pod names any more leaves it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from bus.messages.sources import FoundObject
from services.sources.controllers.api_server import ApiServer, RetryRequestError, WaitEnd
from services.sources.controllers.live_read import FORBIDDEN_RETRIES, MAX_WAIT_SECONDS
from services.sources.controllers.object_store import Changed, describe, not_registered
from services.sources.controllers.read_places import ReadPlaces
from services.sources.core.api_objects import metadata_text
from services.sources.core.fetched_object import FetchedObject
from services.sources.core.read_order import ReadOrder
from shared.kube import paths
from shared.kube.interface import READ_TIMEOUT_SECONDS, ApiStatusError, ApiUnreachableError
from shared.model.objects import Object
from shared.podspec.references import Reference

log = logging.getLogger(__name__)

MAX_READS = 16  # at the same time; others wait here, in the right order, and not in the client's queue
KEPT_AFTER_SECONDS = 4.0  # after which a request is answered with the kept object, as after a failed read
OUTAGE_PAUSE_SECONDS = 30.0  # or until the API server answers again
ABSENT_SECONDS = 5.0  # for which an absent object is not read again, where objects are read in turn without a request

Answer = asyncio.Future[FoundObject]


@dataclass(eq=False)
class _CachedObject:
    known: FetchedObject = field(default_factory=FetchedObject)
    waiting: Answer | None = None  # the answer of a read that was not sent yet
    sent: Answer | None = None  # the answer of the read under way
    outdated: bool = False  # the read under way may return an older version than a pod that came since needs
    live: bool = False  # the next read is to be answered from the newest state
    reading: asyncio.Task[None] | None = None


class Refreshing(Struct, frozen=True):
    """How often objects in volumes are read without a request: at most `a_second` in all, and each at most once in
    `period` seconds."""

    a_second: float = 0.0  # 0 = nothing is read before it is requested
    period: float = 0.0


_ONLY_REQUESTED = Refreshing()


class FetchedObjects:
    """An `ObjectStore` that reads objects. `time_to_live` returns the seconds for which an object is valid after a
    read; 0 = it is read at each request. `pods` returns the UIDs of the pods that name an object."""

    def __init__(
        self,
        api: ApiServer,
        changed: Changed,
        time_to_live: Callable[[], float],
        pods: Callable[[Reference], Iterable[str]],
        *,
        is_shown: Callable[[Reference], bool] = lambda _: False,
        refreshing: Refreshing = _ONLY_REQUESTED,
    ) -> None:
        self._api, self._changed, self._time_to_live, self._is_shown = api, changed, time_to_live, is_shown
        self._pods = pods
        self._refreshes = refreshing.a_second > 0
        self._order = ReadOrder(refreshing.a_second, refreshing.period)
        self._kept: dict[Reference, _CachedObject] = {}
        self.on_idle: Callable[[Reference], None] = lambda _: None  # called when an object was read and no read waits
        self._held_until = float("-inf")  # until when the API server has asked to wait
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    def register(self, reference: Reference) -> None:
        """Read the object again, because a pod that names it may need a newer version than the kept one."""
        kept = self._kept.setdefault(reference, _CachedObject())
        kept.known.invalidate()
        kept.outdated = kept.sent is not None
        self._order.refresh(reference, wanted=self._is_shown(reference))
        self._turn()

    def unregister(self, *references: Reference) -> None:
        """Forget the objects, and answer the requests that wait for them."""
        for reference in references:
            self._forget(reference)

    def _forget(self, reference: Reference) -> None:
        self._order.forget(reference)
        kept = self._kept.pop(reference, None)
        if kept is None:
            return
        if kept.reading is not None:
            kept.reading.cancel()
        for answer in (kept.waiting, kept.sent):
            if answer is not None and not answer.done():
                answer.set_result(not_registered(reference))

    async def get(self, reference: Reference, *, fresh: bool) -> FoundObject:
        """Return the kept object while it is valid, else read it. Where refreshes are spread, a failed read is answered
        with the kept object, as by a watch; otherwise with the error."""
        kept = self._kept[reference]
        if not fresh and self._is_valid(reference, kept.known):
            return _answer_of(kept.known)
        kept.live = kept.live or fresh
        if kept.sent is not None and not (kept.outdated or fresh):
            answer = kept.sent
        else:
            answer = kept.waiting = kept.waiting or asyncio.get_running_loop().create_future()
            self._order.need(reference, self._pods(reference))
            self._turn()
        keeps = self._refreshes and kept.known.object is not None
        if not self._api.is_outage:
            with contextlib.suppress(RetryRequestError):
                async with self._api.waiting(WaitEnd.OUTAGE):
                    await asyncio.wait([answer], timeout=KEPT_AFTER_SECONDS if keeps else MAX_WAIT_SECONDS)
        if answer.done():
            found = answer.result()
        else:
            why = f"failed to sync {reference.kind.lower()} cache: timed out waiting for the condition"
            found = FoundObject(object=None, error=self._api.away or why)
        if self._refreshes and found.object is None and not found.not_found and kept.known.object is not None:
            return _answer_of(kept.known)
        return found

    def is_immutable(self, reference: Reference) -> bool:
        """Return whether the object was read and can never change."""
        return reference in self._kept and self._kept[reference].known.immutable

    def is_being_read(self, reference: Reference) -> bool:
        """Return whether a read of the object waits for its turn or for its answer."""
        kept = self._kept[reference]
        return kept.waiting is not None or kept.sent is not None

    def known(self, reference: Reference) -> Object | None:
        """Return the object with which a request would be answered at once; None = it would be read."""
        known = self._kept[reference].known
        return known.object if self._is_valid(reference, known) else None

    @property
    def waiting(self) -> int:
        """Return how many reads are under way or wait for their turn."""
        return len(self._order)

    def sends_first_version(self, reference: Reference) -> bool:
        """Return False: nothing is read without a request."""
        return False

    def sweep(self) -> None:
        """Do nothing, because there are no watches."""

    async def close(self) -> None:
        """Stop reading."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        for reference in list(self._kept):
            self.unregister(reference)

    def _is_valid(self, reference: Reference, known: FetchedObject) -> bool:
        ttl = self._time_to_live()
        if self._refreshes and known.object is None:
            ttl = ABSENT_SECONDS
        elif self._refreshes:
            by_itself = known.immutable or self._order.is_refreshed(reference)
            ttl = float("inf") if by_itself else self._order.period(ttl)
        return known.is_valid(self._api.clock.monotonic(), ttl, self._api.history)

    def _turn(self) -> None:
        self._wake.set()
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run(), name="reads of objects")

    async def _run(self) -> None:
        """Begin reads, in order, while there is room for them."""
        places = ReadPlaces(MAX_READS, lambda: bool(self._api.away))
        while True:
            await places.acquire()
            reference = await self._next()
            kept = self._kept[reference]
            kept.sent = kept.waiting or asyncio.get_running_loop().create_future()
            kept.waiting, kept.outdated = None, False
            kept.reading = asyncio.create_task(self._read(reference, kept), name=f"read {describe(reference)}")
            kept.reading.add_done_callback(places.begin())

    async def _next(self) -> Reference:
        while True:
            self._wake.clear()
            now, ttl = self._api.clock.monotonic(), self._time_to_live()
            if self._api.is_outage:
                await self._api.pause(OUTAGE_PAUSE_SECONDS, interruptible=True)
                continue
            if now >= self._held_until and (reference := self._order.take(now, ttl)) is not None:
                return reference
            due = self._order.next_at(ttl)
            wait = None if due is None else max(due, self._held_until) - now
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _read(self, reference: Reference, kept: _CachedObject) -> None:
        answer = kept.sent
        assert answer is not None
        found: FoundObject | None = None
        try:
            found = await self._ask(reference, kept)
        except Exception as error:
            log.exception("%s: its read failed", describe(reference))
            found = FoundObject(object=None, error=f"{type(error).__name__}")
        finally:
            kept.sent = kept.reading = None
            if self._kept.get(reference) is kept:  # it may be forgotten, and perhaps registered again
                self._order.done(reference)
                if found is None:  # the API server has asked to wait
                    kept.waiting = _joined(kept.waiting, answer)
                    self._order.need(reference, self._pods(reference))
                else:
                    if not answer.done():
                        answer.set_result(found)
                    if kept.waiting is None:
                        self.on_idle(reference)
            self._wake.set()

    async def _ask(self, reference: Reference, kept: _CachedObject) -> FoundObject | None:
        """Read the object and keep the answer; None = the API server has asked to wait."""
        path = f"{paths.referenced(reference.kind, reference.namespace)}/{reference.name}"
        history = self._api.history
        # An API server may answer version 0 from its memory, which is enough for a periodic read. That memory may still
        # be of the store before it was restored.
        may_lag = kept.known.object is not None and kept.known.history == history
        cached = may_lag and (self._refreshes or self._time_to_live() > 0)
        query = {"resourceVersion": "0"} if cached and not kept.live else None
        kept.live = False
        retries = iter(FORBIDDEN_RETRIES)
        while True:
            try:
                obj = await self._api.clients.objects.get(path, query, timeout=READ_TIMEOUT_SECONDS)
            except ApiUnreachableError as error:
                self._api.failed(path, error)
                return FoundObject(object=None, error=str(error))
            except ApiStatusError as error:
                if error.not_found:
                    self._take(reference, kept, None, str(error), history)
                elif error.code == 429:
                    self._held_until = self._api.clock.monotonic() + (error.retry_after or 1.0)
                    return None
                elif error.forbidden and (delay := next(retries, None)) is not None:
                    await asyncio.sleep(delay)
                    continue
                return FoundObject(object=None, not_found=error.not_found, error=str(error))
            self._api.is_there()
            self._take(reference, kept, obj, "", history)
            return FoundObject(object=obj) if kept.outdated else _answer_of(kept.known)

    def _take(self, reference: Reference, kept: _CachedObject, obj: Object | None, absent: str, history: int) -> None:
        now, known = self._api.clock.monotonic(), kept.known
        if kept.outdated:
            return
        if obj is None:
            known.missed(absent, now, history)
        else:
            known.fetched(obj, now, history)
        if reference in self._kept:
            self._order.refresh(reference, wanted=self._is_shown(reference) and not known.immutable)
            self._changed(reference, metadata_text(known.object, "resourceVersion"))


def _joined(waiting: Answer | None, put_off: Answer) -> Answer:
    """Return one answer for the requests that wait for the next read and for a read that was put off."""
    if waiting is None:
        return put_off
    waiting.add_done_callback(lambda done: None if put_off.done() else put_off.set_result(done.result()))
    return waiting


def _answer_of(known: FetchedObject) -> FoundObject:
    return FoundObject(object=known.object, not_found=known.object is None, error=known.not_found)
