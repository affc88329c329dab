"""Keeps the pods of the API server, and what they need, in an encrypted record, and has it at hand where the API server
does not answer after a start (`offlinePods`).

The record follows what was published, at once and then every `MIN_SAVE_SECONDS`: it is a copy of what the API server
has, so a kill before a save makes it older, and no decision depends on it once the API server has listed the pods.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from msgspec import to_builtins

from bus.messages.event import KubeEvent
from bus.messages.sources import FoundObject, FoundServices, GetObject, GetServices
from bus.stream import EventRecorder
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.node_watch import WHAT as NODE
from services.sources.controllers.troubles import Troubles
from services.sources.core.api_objects import without_managed_fields
from services.sources.core.offline_record import (
    OF_PODS,
    UNWATCHED,
    KeptAnswer,
    Key,
    OfflineRecordData,
    decode,
    fill_record,
    kept_answer,
    needed_by,
)
from shared.config.effective import EffectiveConfig, OfflinePods
from shared.model import objects
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.offline.answers import WITHOUT_ANSWER_SECONDS, live_or_kept
from shared.offline.record import RECORD_ERRORS, OfflineRecord, remove_offline_records
from shared.podspec.references import Reference
from shared.process.crash import crash_point
from shared.time.timestamps import rfc3339

log = logging.getLogger(__name__)

NAME = "pods"
PODS = "pods"  # the name of requests for pods in log lines
MIN_SAVE_SECONDS = 5.0  # from the start and from each save to the next one, for all that changes meanwhile
MAX_RENEWAL_SECONDS = 3600.0  # after which a record without changes is saved again, because the API server confirms it
READ_TIMEOUT_SECONDS = 5.0  # for an object
MAX_READS = 20  # at the same time
# The names of troubles.
IN_USE = "offline pods"
UNUSABLE = "record of offline pods"
UNSAVED = "save of the record of offline pods"
TOO_LARGE = "size of the record of offline pods"


class OfflineRecordOfPods:
    """Keeps the record. `node`, `pods` and `services` return what the API server has now, `pods` None while its list is
    not complete; `read` answers a request from memory."""

    def __init__(
        self,
        config: EffectiveConfig,
        settings: OfflinePods,
        api: ApiServer,
        troubles: Troubles,
        events: EventRecorder,
        *,
        node: Callable[[], Object | None],
        pods: Callable[[], list[Object] | None],
        services: Callable[[GetServices], FoundServices],
        read: Callable[[GetObject], Coroutine[Any, Any, FoundObject]],
    ) -> None:
        self._config, self._settings, self._api = config, settings, api
        self._troubles, self._events = troubles, events
        self._node, self._pods, self._services, self._read = node, pods, services, read
        self._record = OfflineRecord(config, NAME, settings.max_age)
        self._answers: dict[Key, KeptAnswer] = {}  # those requested last come last
        self._changed: set[Reference] = set()  # Secrets and ConfigMaps whose newest version was not requested
        self._loaded: OfflineRecordData | None = None
        self._known_services: dict[str, list[Object]] = {}  # of the record, by namespace
        self.since = ""  # RFC 3339: of when the record is that pods run from; "" = the API server has listed them
        self._in_use, self._is_due = asyncio.Event(), asyncio.Event()
        self._is_listed = False
        self._decided = asyncio.Event()  # set when pods run from the record, or the API server has listed them

    async def take_over(
        self, node_read: asyncio.Event, listed: asyncio.Event, last: Collection[str] | None
    ) -> OfflineRecordData | None:
        """Read the record. Return it once the API server has not answered for `WITHOUT_ANSWER_SECONDS`, for our Node or
        after that for the pods; None = it has listed the pods, or there is no record. An API server that refuses the
        node has answered. `last`: the UIDs of the pods that were published last, None = unknown; any other pod of the
        record has ended."""
        await self._record.wait_for_credentials()
        if (loaded := await self._load()) is None:
            return None
        if last is not None:
            loaded = replace(loaded, pods=[pod for pod in loaded.pods if objects.uid(pod) in last])
        self._answers = {answer.key: answer for answer in loaded.answers}
        while not listed.is_set():
            was_read = node_read.is_set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WITHOUT_ANSWER_SECONDS):
                    await listed.wait()
            has_answered = listed.is_set() or node_read.is_set() != was_read
            if not (has_answered or self._api.refuses(NODE) or self._api.refuses(PODS)):
                self._loaded, self.since = loaded, rfc3339(loaded.saved)
                self._known_services = loaded.services
                self._in_use.set()
                self._decided.set()
                line = f"the API server did not answer after the start: {len(loaded.pods)} pods are known from the"
                line += f" record of {self.since}, and run as they were then until it lists them"
                self._troubles.set(IN_USE, f"{line} (restore the connection)")
                return loaded
        return None

    def listed(self, *, changed: bool) -> None:
        """Note that the pods that the API server has are published; `changed`: others than before, or other specs."""
        if self.since:
            count, since = len(self._loaded.pods) if self._loaded is not None else 0, self.since
            message = f"{count} pods were started from the record of {since}, because the API server did not answer"
            self._events.record(
                KubeEvent(
                    type="Normal", reason="StartedFromRecord", message=message, kind="Node", name=self._config.node_name
                )
            )
            self._loaded, self.since = None, ""
            self._in_use.clear()
            self._troubles.set(IN_USE, None)
            changed = True
        if not self._is_listed:  # objects of an earlier record may have changed since
            self._changed |= {Reference(*key) for key in self._answers if key[0] in OF_PODS}
        self._is_listed = True
        self._decided.set()
        if changed:
            self._is_due.set()

    async def answer(self, request: GetObject) -> FoundObject:
        """Answer GetObject: while pods run from the record from it, as far as it goes. A request that fails before it
        is decided whether they do waits for that, because its sender would repeat it later."""
        key = (request.kind, request.namespace, request.name)

        def kept() -> FoundObject | None:
            return self._answers[key].found if self._is_usable and key in self._answers else None

        def is_open(found: FoundObject) -> bool:
            failed = found.object is None and not found.not_found
            return failed and key in self._answers and not self._decided.is_set()

        live = partial(self._read, request)
        found, is_live = await live_or_kept(live, kept, self._in_use, is_open, self._decided)
        if is_live:
            self._remember(request, found)
        return found

    def services(self, request: GetServices) -> FoundServices | None:
        """Return the Services of the record from which pods have run; None = the record has none."""
        if (known := self._known_services.get(request.namespace)) is None:
            return None
        return FoundServices(synced=True, services=tuple(known))

    @property
    def _is_usable(self) -> bool:
        """Return whether pods run from the record, which is young enough, and the API server does not refuse the node:
        then containers that start get what it has."""
        if self._loaded is None or self._api.refuses(NODE):
            return False
        return self._api.clock.wall() - self._loaded.saved <= self._settings.max_age

    def _remember(self, request: GetObject, found: FoundObject) -> None:
        """Keep an answer of the API server for the record."""
        if (kept := kept_answer(request, found)) is None:
            return
        if kept.object is not None:
            kept = replace(kept, object=without_managed_fields(kept.object))
        if self._answers.pop(kept.key, None) != kept:
            self._is_due.set()
        self._answers[kept.key] = kept

    def object_changed(self, reference: Reference) -> None:
        """Note that the API server sent another version of a Secret or ConfigMap, which nobody may request."""
        self._changed.add(reference)
        self._is_due.set()

    async def run(self) -> None:
        """Save the record after changes, and now and then while the API server confirms it, until cancelled."""
        renewal, clock = min(MAX_RENEWAL_SECONDS, self._settings.max_age / 4), self._api.clock
        read_at = looked_at = clock.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(renewal):
                    await self._is_due.wait()
                    await asyncio.sleep(max(0.0, looked_at + MIN_SAVE_SECONDS - clock.monotonic()))
            if self._is_confirmed and self._pods() is not None:
                self._is_due.clear()
                if clock.monotonic() - read_at >= renewal:
                    read_at = clock.monotonic()
                    self._changed |= {Reference(*key) for key in self._answers if key[0] in UNWATCHED}
                try:
                    await self._save()
                except Exception as error:  # a bug here ends no other part of sources
                    log.exception("the record of pods could not be saved")
                    self._troubles.set(UNSAVED, f"the record of pods could not be saved: {error!r}", logged=True)
            looked_at = clock.monotonic()

    @property
    def _is_confirmed(self) -> bool:
        """Return whether the API server answers for the Node and its pods, so that the record becomes no younger while
        it refuses the node."""
        return not (self._api.away or any(map(self._api.is_answered_with_error, (NODE, PODS))))

    async def _load(self) -> OfflineRecordData | None:
        try:
            content = await asyncio.to_thread(self._record.load, self._api.clock.wall())
        except RECORD_ERRORS as error:
            self._troubles.set(UNUSABLE, f"the record of pods is not used: {error}")
            return None
        found = None if content is None else decode(content)
        if content is not None and found is None:
            self._troubles.set(UNUSABLE, "the record of pods is not used: another version of the agent has written it")
        return found

    async def _save(self) -> None:
        await self._read_missing(self._pods() or [])
        if (pods := self._pods()) is None:
            return
        spaces = sorted({objects.namespace(pod) for pod in pods})
        found = {space: self._services(GetServices(namespace=space)) for space in spaces}
        services = {space: list(one.services) for space, one in found.items() if one.synced}
        answers, limit = dict(self._answers), self._settings.max_bytes
        line: str | None
        try:
            filled = await asyncio.to_thread(fill_record, pods, self._node(), answers, services, limit)
            line = await asyncio.to_thread(self._record.save, to_builtins(filled.data), self._api.clock.wall())
        except RECORD_ERRORS as error:
            line = f"the record of pods cannot be saved: {error}"
            self._is_due.set()
        else:
            self._troubles.set(UNUSABLE, None)
            self._troubles.set(TOO_LARGE, _describe_left_out(filled.left_out))
            for key in filled.unneeded:
                if self._answers.get(key) is answers[key]:  # no newer one came meanwhile
                    del self._answers[key]
        self._troubles.set(UNSAVED, line)
        crash_point("sources.offline.saved")

    async def _read_missing(self, pods: list[Object]) -> None:
        """Read what has changed, and what pods need that nobody has requested in this process."""
        changed = {(one.kind, one.namespace, one.name) for one in self._changed}
        self._changed = set()
        missing = {key for pod in pods for key in needed_by(pod, self._answers) if key not in self._answers}
        turns = asyncio.Semaphore(MAX_READS)

        async def read(kind: str, space: str, name: str) -> None:
            request = GetObject(kind=kind, namespace=space, name=name)
            with contextlib.suppress(TimeoutError):
                async with turns, asyncio.timeout(READ_TIMEOUT_SECONDS):
                    self._remember(request, await self._read(request))

        async with asyncio.TaskGroup() as tasks:
            for key in sorted(changed | missing):
                tasks.create_task(read(*key))


async def remove_records(config: EffectiveConfig, troubles: Troubles) -> None:
    """Remove the records that an earlier configuration has left."""
    try:
        await asyncio.to_thread(remove_offline_records, config)
    except OSError as error:
        troubles.set(UNSAVED, f"the record of pods, which offlinePods does not enable, cannot be removed: {error}")


def _describe_left_out(pods: list[str]) -> str | None:
    if not pods:
        return None
    named = ", ".join(pods[:3]) + (", …" if len(pods) > 3 else "")
    return f"{len(pods)} pods are not in the record of pods, which is full: {named} (raise offlinePods.maxBytes)"
