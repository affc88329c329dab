"""An API server inside one process, for tests: what a kubelet can see of the real one, without HTTP.

The contract tests in tests/contracts/ hold it and the real API server to the same behaviour. Time passes on the event
loop: on a VirtualLoop that is the ManualClock's (`tests.fakes.virtual_time`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.kube import paths
from shared.kube.interface import (
    ApiClient,
    ApiStatusError,
    ApiUnansweredError,
    ApiUnreachableError,
    PatchType,
    WatchEvent,
)
from shared.model.objects import Object
from shared.time.clock import Clock
from tests.fakes.api_requests import Answer, ApiRequests
from tests.fakes.api_resources import NEWEST, OlderServer, selector_of, target_of
from tests.fakes.api_store import ApiStore, WatchStream
from tests.fakes.json_copy import json_copy

ADMIN = "system:admin"
_NAMESPACES = ("default", "kube-system", "kube-node-lease", "kube-public")
_TIMEOUT = 30.0  # seconds a request waits for a server that does not answer, when its caller gives none
_TRIES = 11


@dataclass(frozen=True)
class Received:
    """One request that reached the server, refused ones too; `method` is GET, WATCH, POST, PUT, PATCH or DELETE."""

    method: str
    path: str
    user: str
    query: dict[str, str]
    body: Any


@dataclass
class _Refusal:
    left: int
    error: ApiStatusError


class FakeApiServer:
    """The objects, their clients and the faults a test orders. `drops` makes it an older server, as V1_20 does."""

    def __init__(self, clock: Clock, *, drops: OlderServer = NEWEST) -> None:
        self.clock = clock
        self.store = ApiStore(clock)
        self.received: list[Received] = []
        self._requests = ApiRequests(self.store, drops)
        self._drops = drops
        self._reachable = True
        self.slow(0.0)
        self._running = asyncio.Event()
        self._running.set()
        self._refusals: list[_Refusal] = []
        self._answers_lost = 0
        self.speaks_http2 = True
        for name in _NAMESPACES:
            self.put(f"/api/v1/namespaces/{name}", {})
        self.put("/api/v1/namespaces/default/serviceaccounts/default", {})

    def client(self, user: str = ADMIN) -> ApiClient:
        """A connection of this user; `system:node:<name>` meets the node rules, every other user may do anything."""
        return FakeClient(self, user)

    @property
    def requests(self) -> list[tuple[str, str]]:
        """(method, path) of what clients other than the admin's have sent."""
        return [(received.method, received.path) for received in self.received if received.user != ADMIN]

    # What an administrator, the scheduler or a controller does; at once, unlogged, untouched by faults.

    def get(self, path: str) -> Object | None:
        """The object at this path as it is now."""
        return self.store.get(path)

    def put(self, path: str, body: Object) -> Object:
        """Create the object at its path, or replace it; its status too when the body has one."""
        target = target_of(path)
        metadata = {**body.get("metadata", {}), "name": target.name}
        if target.resource.namespaced:
            metadata["namespace"] = target.namespace
        body = {**body, "metadata": metadata}
        if self.store.get(path) is None:
            written = self._requests.create(ADMIN, target_of(path.rpartition("/")[0]), body)
        else:
            metadata.pop("resourceVersion", None)
            written = self._requests.update(ADMIN, target, body)
        if target.resource.has_status and "status" in body:
            status = {"metadata": written["metadata"], "status": body["status"]}
            written = self._requests.update(ADMIN, target_of(f"{path}/status"), {**written, **status})
        return written

    def bind(self, pod: Object, node: str) -> Object:
        """Create this pod, scheduled to the node; the pod as a watch shows it."""
        metadata = pod["metadata"]
        path = paths.pod(metadata.get("namespace", "default"), metadata["name"])
        return self.put(path, {**pod, "spec": {**pod["spec"], "nodeName": node}})

    def delete(self, path: str, grace: int | None = None) -> Object:
        """Delete as kubectl does; `grace` in seconds."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        return self._requests.delete(ADMIN, target_of(path), options)

    def answer(self, kind: str, answer: Answer) -> None:
        """The status of TokenReview, SubjectAccessReview or TokenRequest, computed from the request."""
        self._requests.answers[kind] = answer

    def compact(self) -> None:
        """Forget the history: watches from before now get 410."""
        self.store.compact()

    def bookmark(self) -> None:
        """Send every watch that asked for it a bookmark."""
        for stream in self.store.streams:
            stream.bookmark()

    # Faults.

    def down(self) -> None:
        """The connection is refused and open watches break, until `up`."""
        self._reachable = False
        self.drop_watches()

    def up(self) -> None:
        """Reachable, running, fast, refusing nothing."""
        self._reachable = True
        self.slow(0.0)
        self._refusals.clear()
        self._answers_lost = 0
        self.resume()

    def pause(self) -> None:
        """No request is answered and no watch gets an event (a black hole, a stopped process), until `resume`."""
        self._running.clear()
        self._set_paused(True)

    def resume(self) -> None:
        """Go on: what waited is answered."""
        self._running.set()
        self._set_paused(False)

    def slow(self, seconds: float | Callable[[Received], float]) -> None:
        """Every request takes this long, or as long as the function returns for it, and has its effect at the end;
        0 = at once again."""
        self._seconds = seconds if callable(seconds) else lambda _: seconds

    def refuse(self, n: int, code: int = 429, *, retry_after: float | None = None, reason: str = "") -> None:
        """The next `n` requests (0 = all until `up`) get this error; a 429 has Retry-After 1 by default."""
        after = 1.0 if code == 429 and retry_after is None else retry_after
        reasons = {401: "Unauthorized", 403: "Forbidden", 429: "TooManyRequests", 500: "InternalError"}
        error = ApiStatusError(
            code, reason or reasons.get(code, "ServiceUnavailable"), f"refused with {code}", retry_after=after
        )
        self._refusals.append(_Refusal(n, error))

    def lose_answers(self, n: int) -> None:
        """The next `n` requests take effect, and their callers never learn it: the connection is lost."""
        self._answers_lost = n

    def drop_watches(self) -> None:
        """The connections of all watches break."""
        for stream in list(self.store.streams):
            stream.break_off()

    def _set_paused(self, paused: bool) -> None:
        for stream in self.store.streams:
            stream.paused = paused
            stream.wake()

    # What clients call.

    async def arrive(self, received: Received, timeout: float | None) -> None:
        """The request's way to the server: logged when it gets there, as faults let it."""
        try:
            async with asyncio.timeout(_TIMEOUT if timeout is None else timeout):
                await asyncio.sleep(self._seconds(received))
                await self._running.wait()
        except TimeoutError:
            raise ApiUnansweredError(f"{received.method} {received.path}: no answer in time") from None
        if not self._reachable:
            raise ApiUnreachableError(f"{received.method} {received.path}: connection refused")
        self.received.append(received)
        if self._refusals:
            refusal = self._refusals[0]
            refusal.left -= 1
            if refusal.left == 0:
                self._refusals.pop(0)
            raise refusal.error
        version = received.query.get("resourceVersion", "")
        is_list = received.method == "GET" or "sendInitialEvents" in received.query
        if is_list and version.isdecimal():
            await self.store.reach(int(version))

    def perform(self, received: Received, kind: PatchType) -> Object:
        """Handle the request."""
        done = self._done(received, kind)
        if self._answers_lost:
            self._answers_lost -= 1
            raise ApiUnreachableError(f"{received.method} {received.path}: the connection was lost")
        return done

    def _done(self, received: Received, kind: PatchType) -> Object:
        if received.path == paths.VERSION:
            major, minor = self._drops.version
            return {"major": str(major), "minor": str(minor), "gitVersion": f"v{major}.{minor}.0"}
        if received.path.startswith(self._drops.absent):
            raise ApiStatusError(404, "NotFound", "the server could not find the requested resource")
        target, user, body = target_of(received.path), received.user, received.body
        if target.resource.since > self._drops.version:
            raise ApiStatusError(404, "NotFound", "the server could not find the requested resource")
        match received.method:
            case "GET":
                return self._requests.read(user, target, received.query)
            case "POST":
                return self._requests.create(user, target, body)
            case "PUT":
                return self._requests.update(user, target, body)
            case "PATCH":
                return self._requests.patch(user, target, body, kind)
            case _ if not target.name:
                return self._requests.delete_collection(user, target, received.query)
            case _:
                return self._requests.delete(user, target, body or {})

    def open_watch(self, received: Received, seconds: float) -> WatchStream:
        """A stream from the wanted revision on."""
        target, query = target_of(received.path), received.query
        self._requests.may_watch(received.user, target, query)
        if wrong := self._drops.why_not_by_watch(query):
            raise ApiStatusError(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {wrong}')
        selector = selector_of(target.resource, query, self._drops)
        stream = WatchStream(self.store, target, selector, seconds, query.get("allowWatchBookmarks") == "true")
        if query.get("sendInitialEvents") == "true" and self._drops.version >= (1, 27):
            stream.begin_with_all()
        else:
            stream.begin(query.get("resourceVersion", ""))
        return stream


class FakeClient:
    """Implements `shared.kube.interface.ApiClient` for one user."""

    def __init__(self, server: FakeApiServer, user: str) -> None:
        self._server, self._user = server, user
        self.tries = _TRIES
        self.connections_dropped = 0
        self.closed = False

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Object:
        return await self._send("GET", path, None, timeout, query=query)

    async def create(self, path: str, body: Object, *, timeout: float | None = None) -> Object:
        return await self._send("POST", path, body, timeout)

    async def update(self, path: str, body: Object, *, timeout: float | None = None) -> Object:
        return await self._send("PUT", path, body, timeout)

    async def patch(
        self, path: str, body: Any, kind: PatchType = PatchType.STRATEGIC, *, timeout: float | None = None
    ) -> Object:
        return await self._send("PATCH", path, body, timeout, kind=kind)

    async def delete(
        self,
        path: str,
        options: Object | None = None,
        query: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Object:
        return await self._send("DELETE", path, options, timeout, query=query)

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, timeout: float, answer_timeout: float | None = None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        received = Received("WATCH", path, self._user, dict(query), None)
        await self._server.arrive(received, answer_timeout)
        stream = self._server.open_watch(received, timeout)
        try:
            yield stream
        finally:
            stream.close()

    @property
    def shares_watches(self) -> bool:
        return self._server.speaks_http2

    async def drop_connections(self) -> None:
        self.connections_dropped += 1

    async def close(self) -> None:
        self.closed = True

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
        deadline = loop.time() + (_TIMEOUT if timeout is None else timeout)
        received = Received(method, path, self._user, dict(query or {}), json_copy(body))
        for attempt in range(self.tries):
            try:
                await self._server.arrive(received, deadline - loop.time())
                return self._server.perform(received, kind)
            except ApiStatusError as error:
                after = None if error.too_large_version else error.retry_after
                if after is None or attempt == self.tries - 1 or loop.time() + after >= deadline:
                    raise
                await asyncio.sleep(after)
        raise AssertionError("unreachable")
