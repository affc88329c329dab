"""Runs one list and watch against the API server: performs the reflector's steps and passes on the results."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from services.sources.controllers.api_server import ApiServer, RetryRequestError, WaitEnd
from services.sources.core.api_objects import metadata_text, read_list
from services.sources.core.reflector import (
    MAX_PROMPT_PAUSE_SECONDS,
    SPREAD_SECONDS,
    ListAll,
    Pause,
    Reflector,
    WatchAll,
    WatchFrom,
)
from shared.kube.interface import (
    ApiClient,
    ApiError,
    ApiMalformedError,
    ApiStatusError,
    WatchEvent,
)
from shared.model.fields import dictionary

log = logging.getLogger(__name__)

MAX_EXPECTED_REFUSALS = 3  # by the authorizer, right after a pod was bound
WOKEN_AGAIN_SECONDS = 30.0  # until a pause may end early again; requests that still fail back off meanwhile
CHANGES = ("ADDED", "MODIFIED", "DELETED")
INITIAL_EVENTS_END = "k8s.io/initial-events-end"  # the annotation of the bookmark after all objects
MAX_STALLED_SECONDS = 10.0  # without an event before that bookmark, after which the objects are listed
MAX_INITIAL_BYTES = 256 * 2**20  # of the events before it, as of a list


@dataclass(eq=False)
class ListWatch:
    """Keeps one collection in step. `on_list` receives every item of a complete list, `on_change` a kind of change and
    its object; both must accept whatever the API server sends, and not raise."""

    api: ApiServer
    client: ApiClient
    what: str  # the name in log lines, such as `pods`
    path: str
    selector: str  # fieldSelector, "" = everything
    on_list: Callable[[list[Any]], None]
    on_change: Callable[[str, Any], None]
    reflector: Reflector = field(default_factory=Reflector)
    on_failure: Callable[[], None] = lambda: None  # called when the list could not be read
    selector_needed: bool = True  # False = an older API server that does not know the selector is read without it
    kept: Callable[[Any], Any] = lambda item: item  # what is needed of an object, where they come one after another
    synced: asyncio.Event = field(default_factory=asyncio.Event, init=False)  # listed at least once
    _forbidden: int = field(default=0, init=False)  # refusals in a row
    _history: int = field(default=0, init=False)  # the history of the API server's store that our version belongs to
    _woken_at: float = field(default=float("-inf"), init=False)  # when the end of an outage ended a pause
    _outages: int = field(default=0, init=False)  # the number of outages before our last list
    _listed_at: float = field(default=float("-inf"), init=False)  # when the store was last compared by a list

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            if self._is_unproven:
                # Pause, because where some requests are answered and others refused, each answer ends an outage and
                # each refusal begins one.
                pause = MAX_PROMPT_PAUSE_SECONDS * (1 + self.api.chance()) / 2
                await asyncio.sleep(max(0.0, self._listed_at + pause - self.api.clock.monotonic()))
            if self._history != self.api.history or self._is_unproven:
                self._history = self.api.history
                self.reflector.went_back()
            if self.api.is_outage and not self.reflector.probes and not self._was_woken:
                await self._pause(None, interruptible=True)
                continue
            self.reflector.streams = self.api.streams_lists
            try:
                match self.reflector.next_step(self.api.chance()):
                    case ListAll(oldest):
                        await self._list(oldest)
                    case WatchAll() | WatchFrom() as step:
                        await self._watch(step)
                    case Pause(seconds, interruptible):
                        await self._pause(seconds, interruptible=interruptible)
            except RetryRequestError:
                await asyncio.sleep(self._spread * self.api.chance())

    async def _pause(self, seconds: float | None, *, interruptible: bool) -> None:
        interruptible = interruptible and not self._was_woken
        if await self.api.pause(seconds, interruptible=interruptible, spread=self._spread):
            self._woken_at = self.api.clock.monotonic()
            self.reflector.woken()

    @property
    def _was_woken(self) -> bool:
        """Return whether an outage ended a moment ago. If only this request still fails, its pauses continue to
        grow."""
        return self.api.clock.monotonic() - self._woken_at < WOKEN_AGAIN_SECONDS

    @property
    def _is_unproven(self) -> bool:
        """Return whether there was an outage since the list by which the API server's store is compared."""
        return self.reflector.probes and self._outages != self.api.outages

    @property
    def _spread(self) -> float:
        return 0.0 if self.reflector.probes else SPREAD_SECONDS

    async def _list(self, oldest: str) -> None:
        query = {"resourceVersion": oldest} if oldest else {}
        newest, history, outages = self.api.newest, self.api.history, self.api.outages
        try:
            async with self.api.waiting(WaitEnd.OUTAGE_OVER):
                answer = await self.client.get(self.path, self._selected(query), timeout=self.reflector.answer_timeout)
        except ApiError as error:
            unknown = isinstance(error, ApiStatusError) and error.code == 400
            if unknown and self.selector and not self.selector_needed:
                log.info("%s: listed without a selector, the API server does not know it: %s", self.what, error)
                self.selector = ""
                return
            self._list_failed(error)
            return
        found = read_list(answer)
        if found is None:
            self._list_failed(None)
            return
        items, version = found
        self.reflector.listed(version)
        self._history = history
        if self.reflector.probes:
            self._outages, self._listed_at = outages, self.api.clock.monotonic()
            self._history = self.api.compare_history(version, newest)
        self._take_all(items, version)

    async def _watch(self, step: WatchFrom | WatchAll) -> None:
        query = {"allowWatchBookmarks": "true"}
        if isinstance(step, WatchAll):
            query |= {
                "resourceVersion": step.oldest,
                "resourceVersionMatch": "NotOlderThan",
                "sendInitialEvents": "true",
            }
        else:
            query |= {"resourceVersion": step.version}
        began, events, history = self.api.clock.monotonic(), 0, self.api.history
        opened = False
        try:
            async with contextlib.AsyncExitStack() as stack:
                watch = self.client.watch(
                    self.path, self._selected(query), timeout=step.timeout, answer_timeout=self.reflector.answer_timeout
                )
                async with self.api.waiting(WaitEnd.OUTAGE_OVER | WaitEnd.WENT_BACK):
                    stream = await stack.enter_async_context(watch)
                    if isinstance(step, WatchAll):
                        items, version = await self._read_all(stream)
                        self.reflector.listed(version)
                        self._history = history
                        self._take_all(items, version)
                opened = True
                self.reflector.watch_opened()
                self._answered()
                if self._is_unproven:
                    return
                until = WaitEnd.WENT_BACK | WaitEnd.FAILURE if self.reflector.probes else WaitEnd.WENT_BACK
                async with self.api.waiting(until):
                    async for event in stream:
                        events += 1
                        self._take(event)
                        if not self.reflector.version:
                            return
        except ApiError as error:
            if isinstance(step, WatchAll) and not opened:
                if isinstance(error, ApiStatusError) and error.code == 422:
                    self.api.streams_lists = False  # it does not know the parameters, or its feature is off
                self._list_failed(error)
                return
            now = self.api.clock.monotonic()
            self.reflector.watch_failed(error, now=now, chance=self.api.chance(), opened=opened)
            if opened or (isinstance(error, ApiStatusError) and error.gone):
                log.debug("%s: the watch ended: %s", self.what, error)  # no warning, as the next request may succeed
            else:
                self._report(error)
            return
        now = self.api.clock.monotonic()
        self.reflector.watch_ended(lasted=now - began, events=events, now=now, chance=self.api.chance())

    async def _read_all(self, stream: AsyncIterator[WatchEvent]) -> tuple[list[Any], str]:
        """Return what is kept of the objects with which a watch begins, and their version. Raises ApiError where they
        do not come as they should."""
        found: dict[tuple[str, str], Any] = {}
        size = 0
        while True:
            try:
                async with asyncio.timeout(MAX_STALLED_SECONDS):
                    event = await anext(stream)
            except TimeoutError:
                self.api.streams_lists = False
                raise ApiMalformedError(
                    f"no event in {MAX_STALLED_SECONDS:.0f} s, before all objects had come"
                ) from None
            except StopAsyncIteration:
                raise ApiMalformedError("the watch ended before all objects had come") from None
            annotations = dictionary(dictionary(event.object.get("metadata")).get("annotations"))
            if event.type in CHANGES:
                key = (metadata_text(event.object, "namespace"), metadata_text(event.object, "name"))
                found.pop(key, None)
                if event.type != "DELETED":
                    item = {name: value for name, value in event.object.items() if name not in ("apiVersion", "kind")}
                    found[key] = self.kept(item)  # as in a list, whose items have no kind of their own
            elif annotations.get(INITIAL_EVENTS_END) == "true":
                if not (version := metadata_text(event.object, "resourceVersion")):
                    raise ApiMalformedError("the bookmark after all objects has no version")
                return list(found.values()), version
            size += event.size
            if size > MAX_INITIAL_BYTES:
                raise ApiMalformedError(f"all objects are longer than {MAX_INITIAL_BYTES >> 20} MiB")

    def _selected(self, query: dict[str, str]) -> dict[str, str]:
        return query | {"fieldSelector": self.selector} if self.selector else query

    def _list_failed(self, error: ApiError | None) -> None:
        if self.reflector.list_failed(error, now=self.api.clock.monotonic(), chance=self.api.chance()):
            log.debug("%s: listed in another way: %s", self.what, error)
            return
        if error is None:
            self.api.failed(self.what, ApiError("what it sent is no list"))
        else:
            self._report(error)
        self.on_failure()

    def _take_all(self, items: list[Any], version: str) -> None:
        self.api.saw(version)
        self.on_list(items)
        self.synced.set()
        self._answered()

    def _answered(self) -> None:
        self._forbidden = 0
        self.api.answered(self.what)

    def _report(self, error: ApiError) -> None:
        forbidden = isinstance(error, ApiStatusError) and error.forbidden
        self._forbidden = self._forbidden + 1 if forbidden else 0
        self.api.failed(self.what, error, may_pass=0 < self._forbidden <= MAX_EXPECTED_REFUSALS)

    def _take(self, event: WatchEvent) -> None:
        if event.type in CHANGES:
            self.on_change(event.type, event.object)
        elif event.type != "BOOKMARK":
            log.debug("%s: a watch event of type %s is not understood", self.what, event.type)
        self.reflector.saw(metadata_text(event.object, "resourceVersion"))
        self.api.saw(self.reflector.version)
