"""The API server's double as another machine: requests and answers take time, and a request that left is carried out
even if its sender dies meanwhile."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Any

from shared.kube.interface import (
    ApiClient,
    ApiError,
    ApiStatusError,
    ApiUnansweredError,
    ApiUnreachableError,
    PatchType,
    WatchEvent,
)
from shared.model.objects import Object
from shared.time.clock import Clock
from tests.fakes.api_server import FakeApiServer, FakeClient, Received
from tests.fakes.api_store import WatchStream
from tests.fakes.json_copy import json_copy
from tests.simulation.faults import ApiFault, Fault
from tests.simulation.loop import INCARNATION, Incarnation
from tests.simulation.story import Story

_ANSWER_TIMEOUT = 30.0
_TRIES = 11
_CODES = {"500": (500, "InternalError"), "409": (409, "Conflict"), "429": (429, "TooManyRequests")}


class SimulationApi(FakeApiServer):
    """`faults` of the plan happen by themselves once `begin` was called."""

    def __init__(self, clock: Clock, story: Story, rng: Random, faults: tuple[Fault, ...]) -> None:
        super().__init__(clock)
        self.story, self.rng = story, rng
        self._faults = [fault for fault in faults if isinstance(fault, ApiFault)]
        self._left = {id(fault): fault.times for fault in self._faults}
        self._began = clock.monotonic()
        self._opened: dict[Incarnation, list[WatchStream]] = {}

    def begin(self) -> None:
        """Plan what happens to the watches."""
        loop = asyncio.get_running_loop()
        for fault in self._faults:
            loop.call_later(fault.at, self._strike, fault, context=contextvars.Context())
            if fault.kind == "silent":
                loop.call_later(fault.at + fault.seconds, self._set_paused, False, context=contextvars.Context())

    def fault(self, method: str) -> ApiFault | None:
        """What happens to a request that arrives now."""
        now = self.clock.monotonic() - self._began
        for fault in self._faults:
            if not fault.at <= now < fault.at + fault.seconds or fault.kind in ("broken", "gone"):
                continue
            if fault.kind in ("down", "silent"):
                return fault
            if fault.kind == "409" and method not in ("PATCH", "PUT"):
                continue
            if self._left[id(fault)] > 0:
                self._left[id(fault)] -= 1
                return fault
        return None

    def opened(self, stream: WatchStream) -> None:
        """A watch of the present incarnation."""
        incarnation = INCARNATION.get()
        if incarnation is not None:
            self._opened.setdefault(incarnation, []).append(stream)

    def bury(self, incarnation: Incarnation) -> None:
        """This client is no more."""
        for stream in self._opened.pop(incarnation, []):
            stream.close()

    def client(self, user: str = "system:admin") -> ApiClient:
        return SimulationClient(self, user)

    def _strike(self, fault: ApiFault) -> None:
        self.story.add("fault", f"API server: {fault.kind} for {fault.seconds:g} s")
        if fault.kind in ("down", "broken"):
            self.drop_watches()
        elif fault.kind == "gone":
            self.compact()
            self.drop_watches()
        elif fault.kind == "silent":
            self._set_paused(True)


class SimulationClient(FakeClient):
    """Of one process of the agent."""

    _server: SimulationApi

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, timeout: float, answer_timeout: float | None = None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        received = Received("WATCH", path, self._user, dict(query), None)
        await self._way(received, _ANSWER_TIMEOUT if answer_timeout is None else answer_timeout)
        stream = self._server.open_watch(received, timeout)
        self._server.opened(stream)
        try:
            yield stream
        finally:
            stream.close()

    async def _way(self, received: Received, answer_timeout: float) -> None:
        await asyncio.sleep(self._server.rng.uniform(0.001, 0.005))
        fault = self._server.fault("WATCH")
        if fault is None:
            return
        if fault.kind in _CODES:
            raise _error(fault)
        if fault.kind == "silent":
            await asyncio.sleep(answer_timeout)
            raise ApiUnansweredError(f"WATCH {received.path}: no answer in time")
        raise ApiUnreachableError(f"WATCH {received.path}: {fault.kind}")

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        timeout: float | None,
        *,
        query: Mapping[str, str] | None = None,
        kind: PatchType = PatchType.STRATEGIC,
    ) -> Object:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (_ANSWER_TIMEOUT if timeout is None else timeout)
        incarnation = INCARNATION.get()
        received = Received(method, path, self._user, dict(query or {}), json_copy(body))
        for attempt in range(_TRIES):
            answered: asyncio.Future[Object] = loop.create_future()
            way = self._server.rng.uniform(0.001, 0.005)
            who = incarnation.service if incarnation else "?"
            loop.call_later(way, self._arrive, received, kind, answered, who, context=contextvars.Context())
            try:
                async with asyncio.timeout(max(0.0, deadline - loop.time())):
                    return await answered
            except TimeoutError:
                raise ApiUnansweredError(f"{method} {path}: no answer in time") from None
            except ApiStatusError as error:
                after = error.retry_after
                if after is None or attempt == _TRIES - 1 or loop.time() + after >= deadline:
                    raise
                await asyncio.sleep(after)
        raise AssertionError("unreachable")

    def _arrive(self, received: Received, kind: PatchType, answered: "asyncio.Future[Object]", who: str) -> None:
        story = self._server.story
        fault = self._server.fault(received.method)
        what = f"{received.method} {received.path} of {who}"
        if fault is not None:
            story.note("api", f"{what}: {fault.kind}")
            if fault.kind in _CODES:
                _fail(answered, _error(fault))
                return
            if fault.kind == "down":
                _fail(answered, ApiUnreachableError(f"{what}: connection refused"))
                return
            if fault.kind == "silent":
                return
        result: Object | ApiError
        try:
            result = self._server.perform(received, kind)
        except ApiError as error:
            result = error
            story.note("api", f"{what}: {error}")
        else:
            story.note("api", what)
        if fault is not None:  # lost
            result = ApiUnreachableError(f"{what}: the connection was lost")
        way = self._server.rng.uniform(0.001, 0.004)
        asyncio.get_running_loop().call_later(way, _answer, answered, result, context=contextvars.Context())


def _error(fault: ApiFault) -> ApiStatusError:
    code, reason = _CODES[fault.kind]
    return ApiStatusError(code, reason, f"injected {code}", retry_after=1.0 if code == 429 else None)


def _answer(answered: "asyncio.Future[Object]", result: Object | ApiError) -> None:
    if isinstance(result, ApiError):
        _fail(answered, result)
    elif not answered.done():
        answered.set_result(result)


def _fail(answered: "asyncio.Future[Object]", error: ApiError) -> None:
    if not answered.done():
        answered.set_exception(error)
