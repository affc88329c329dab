"""The API client over HTTP: one rate limit, one time limit, JSON, and credentials followed as they change.

Implements `shared.kube.interface.ApiClient`, which describes paths, queries, answers and errors (config.md 6.1, 6.2).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from msgspec import Struct

from shared.host.machine import architecture
from shared.kube.answers import Answer, MalformedAnswerError, decode_object, retry_after_seconds, status_error
from shared.kube.connection import Connection, ConnectionState, HttpAnswer
from shared.kube.current_connection import CurrentConnection
from shared.kube.failures import BrokenStreamError, unreachable
from shared.kube.interface import ApiMalformedError, ApiStatusError, PatchType, WatchEvent
from shared.kube.request_metrics import NO_ANSWER, RequestMetrics
from shared.kube.request_queue import RequestQueue, Urgency
from shared.kube.watching import WatchStream
from shared.metrics.registry import Registry
from shared.model.objects import Object
from shared.text.json_text import json_bytes
from shared.time.clock import Clock, SystemClock
from shared.tracing.span import Attributes, Kind
from shared.tracing.tracer import Tracer
from shared.version import KUBERNETES_VERSION, release_tag

MAX_REPEATS = 10  # of a request that the server put off
_PUT_OFF_SECONDS = 1.0  # where a 429 has no Retry-After
_WATCH_MARGIN_SECONDS = 30.0  # by which our end of a watch comes after the server's
_MAX_ANSWER_BYTES = 256 * 2**20  # of one answer
Refused = Callable[[int], None]
AGENT_VERSION = version_of("bulkhead-kubelet")  # read before services are forked: it parses a file


def kube_client(
    run_dir: str | Path,
    *,
    qps: float,
    burst: int,
    timeout: float,
    clock: Clock | None = None,
    repeats: int = MAX_REPEATS,
    refused: Refused | None = None,
    metrics: Registry | None = None,
    tracer: Tracer | None = None,
    release: str = KUBERNETES_VERSION,
) -> "KubeClient":
    """Return a client for the credentials in `run_dir`; opens no connection.

    `qps`: requests a second, < 0 = no limit, 0 = 5; `burst`: requests at once; `timeout`: seconds for one request;
    `repeats`: how often a request is repeated after a 429, or a 5xx with Retry-After; `refused`: called with the
    version of credentials that got a 401 while there were no others; `metrics` count the requests; `release`: one of
    RELEASES, in the User-Agent header. While bootstrap has written no credentials, requests raise ApiUnreachableError.
    """
    client = KubeClient(
        Path(run_dir),
        qps=qps,
        burst=burst,
        timeout=timeout,
        clock=clock or SystemClock(),
        repeats=repeats,
        metrics=RequestMetrics(metrics or Registry()),
        tracer=tracer,
        release=release,
    )
    client.refused = refused
    return client


def user_agent(release: str) -> str:
    """Return the User-Agent header in the kubelet's form: `kubelet/v1.37.0 (linux/amd64) bulkhead/0.1.0`."""
    return f"kubelet/{release_tag(release)} (linux/{architecture()}) bulkhead/{AGENT_VERSION}"


class Request(Struct, frozen=True):
    """One request. `path` and the values of `query` are not escaped; `data`: JSON, None = no body."""

    method: str
    path: str
    query: Mapping[str, str]
    data: bytes | None = None
    content_type: str = ""
    is_watch: bool = False
    waited: float = 0.0  # seconds for the rate limit


class KubeClient:
    """`ApiClient` over HTTP/1.1, and for watches HTTP/2 if the server speaks it. Belongs to one event loop; `close`
    it. `qps`: requests a second, `burst`: requests at once; for both see `RequestQueue`."""

    def __init__(
        self,
        run_dir: Path,
        *,
        qps: float,
        burst: int,
        timeout: float,
        clock: Clock,
        metrics: RequestMetrics,
        repeats: int = MAX_REPEATS,
        tracer: Tracer | None = None,
        release: str = KUBERNETES_VERSION,
    ) -> None:
        self._tracer, self._release = tracer or Tracer(), release
        self._run_dir, self._timeout, self._clock, self._repeats = run_dir, timeout, clock, repeats
        self._queue = RequestQueue(qps, burst, clock)
        self._metrics, self._urgency = metrics, Urgency.FIRST
        self.refused: Refused | None = None
        self._current = CurrentConnection(run_dir, user_agent(release))

    def behind(self, urgency: Urgency = Urgency.SECOND, *, shares_connections: bool = False) -> "KubeClient":
        """Return a client with the same rate limit and time limit; its requests pass the rate limit by their urgency,
        after those of this one (`shared.kube.request_queue`).

        It has its own connections, or shares those of this one, and the watches of both share one; then `close` of
        either closes both.
        """
        other = KubeClient(
            self._run_dir,
            qps=-1,
            burst=0,
            timeout=self._timeout,
            clock=self._clock,
            metrics=self._metrics,
            repeats=self._repeats,
            tracer=self._tracer,
            release=self._release,
        )
        other._queue, other._urgency, other.refused = self._queue, urgency, self.refused
        if shares_connections:
            other._current = self._current
        return other

    @property
    def shares_watches(self) -> bool:
        """Whether watches share connections; False as long as none was opened."""
        return self._current.shares_watches

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Object:
        """GET one object, or a list with `items` and `metadata.resourceVersion`."""
        return await self._call("GET", path, query=query, timeout=timeout)

    async def create(self, path: str, body: Object, *, timeout: float | None = None) -> Object:
        """POST to a collection or a subresource; return the object as stored, or the answered review."""
        return await self._call("POST", path, body=body, timeout=timeout)

    async def update(self, path: str, body: Object, *, timeout: float | None = None) -> Object:
        """PUT the complete object; return it as stored."""
        return await self._call("PUT", path, body=body, timeout=timeout)

    async def patch(
        self, path: str, body: Any, kind: PatchType = PatchType.STRATEGIC, *, timeout: float | None = None
    ) -> Object:
        """PATCH an object or its subresource with `body` of this content type; return the object as stored."""
        return await self._call("PATCH", path, body=body, content_type=kind, timeout=timeout)

    async def delete(
        self,
        path: str,
        options: Object | None = None,
        query: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Object:
        """DELETE an object, or those of a collection that `query` selects; `options` are DeleteOptions. Return the
        terminating object, a Status, or the list."""
        return await self._call("DELETE", path, query=query, body=options, timeout=timeout)

    def watch(
        self, path: str, query: Mapping[str, str], *, timeout: float, answer_timeout: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Watch a collection for `timeout` seconds; `async with` gives an iterator of events (see ApiClient)."""
        return self._watch(path, query, timeout, self._timeout if answer_timeout is None else answer_timeout)

    async def drop_connections(self) -> None:
        """Open new connections for new requests; idle ones close now, the others when their requests end."""
        await self._current.drop()

    async def close(self) -> None:
        """Close all connections; requests in progress fail with ApiUnreachableError."""
        await self._current.close()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Object:
        data = None if body is None else json_bytes(body, option=orjson.OPT_NON_STR_KEYS)
        waited = await self._wait_for_rate_limit()
        deadline = asyncio.get_running_loop().time() + (self._timeout if timeout is None else timeout)
        request = Request(method, path, query or {}, data, content_type, waited=waited)
        async with self._answered(request, deadline) as (answer, peer):
            try:
                async with asyncio.timeout_at(deadline):
                    return decode_object(await _read(answer))
            except MalformedAnswerError as error:
                raise ApiMalformedError(f"{peer}: {error}") from None
            except (aiohttp.ClientError, OSError) as error:
                raise unreachable(error, peer) from error

    @asynccontextmanager
    async def _watch(
        self, path: str, query: Mapping[str, str], timeout: float, answer_timeout: float
    ) -> AsyncIterator[WatchStream]:
        full = {**query, "watch": "1", "timeoutSeconds": str(max(1, int(timeout)))}
        waited = await self._wait_for_rate_limit()
        now = asyncio.get_running_loop().time()
        request, ends_by = (
            Request("GET", path, full, is_watch=True, waited=waited),
            now + timeout + _WATCH_MARGIN_SECONDS,
        )
        async with self._answered(request, now + answer_timeout) as (answer, peer):
            yield WatchStream(answer, peer, ends_by)

    async def _wait_for_rate_limit(self, deadline: float | None = None) -> float:
        """Return the seconds waited. Raises TimeoutError, without a token, when that takes beyond the deadline."""
        began = self._clock.monotonic()
        async with asyncio.timeout_at(deadline):
            await self._queue.enter(self._urgency)
        return self._clock.monotonic() - began

    @asynccontextmanager
    async def _answered(self, request: Request, deadline: float) -> AsyncIterator[tuple[Answer, str]]:
        """Yield the head of a successful answer, whose body is not read, and the server that gave it. Requests that can
        be repeated were repeated."""
        renewed, put_off = False, 0
        connection = await self._current.get()
        self._count_wait(request, connection, request.waited)
        while True:
            connection.enter()
            try:
                answer = await self._send(connection, request, deadline)
                try:
                    if answer.status < 300:
                        yield answer, connection.peer
                        return
                    error = await _error_of(answer, connection.peer, deadline)
                finally:
                    answer.close()
            finally:
                await connection.leave()
            if error.code == 401 and not renewed and self._current.has_others(connection):
                renewed = True
                connection = await self._current.get()
                continue
            if error.code == 401 and self.refused is not None:
                self.refused(connection.credentials.version)
            wait = _wait_before_retry(error, answer.retry_after)
            if wait is None or put_off >= self._repeats or asyncio.get_running_loop().time() + wait > deadline:
                raise error
            put_off += 1
            self._metrics.retried(request.method, connection.peer, str(error.code))
            await asyncio.sleep(wait)
            try:
                waited = await self._wait_for_rate_limit(deadline)
            except TimeoutError:
                raise error from None
            connection = await self._current.get()
            self._count_wait(request, connection, waited)

    def _count_wait(self, request: Request, connection: Connection, seconds: float) -> None:
        if self._queue.is_limited:
            self._metrics.passed_rate_limit(request.method, connection.peer, seconds)

    async def _send(self, connection: Connection, request: Request, deadline: float) -> Answer:
        """Send a request and count it by its answer."""
        began, code = time.monotonic(), NO_ANSWER
        attributes: Attributes = {"http.request.method": request.method, "url.path": request.path}
        try:
            with self._tracer.span(f"HTTP {request.method}", Kind.CLIENT, attributes=attributes) as span:
                answer = await _send(connection, request, deadline, self._tracer.traceparent())
                code = str(answer.status)
                span.set("http.response.status_code", answer.status)
            return answer
        finally:
            seconds = None if request.is_watch else time.monotonic() - began
            self._metrics.sent(request.method, connection.peer, code, seconds)


async def _send(connection: Connection, request: Request, deadline: float, traceparent: str) -> Answer:
    """Send and wait for the head of the answer. Raises ApiUnreachableError."""
    headers, state = {"Content-Type": str(request.content_type)} if request.data is not None else {}, ConnectionState()
    if traceparent:
        headers["traceparent"] = traceparent
    options, url = connection.request_options, connection.url(request.path, request.query)
    try:
        async with asyncio.timeout_at(deadline):
            if request.is_watch and connection.http2 is not None:
                answer = await connection.http2.get(url.raw_path_qs, state.set_connected)
                if answer is not None:
                    return answer
            return HttpAnswer(
                await connection.session.request(
                    request.method, url, data=request.data, headers=headers, trace_request_ctx=state, **options
                )
            )
    except (aiohttp.ClientError, BrokenStreamError, OSError, ValueError) as error:
        raise unreachable(error, connection.peer, connected=state.connected) from error


async def _error_of(answer: Answer, peer: str, deadline: float) -> ApiStatusError:
    try:
        async with asyncio.timeout_at(deadline):
            body = await _read(answer)
    except MalformedAnswerError:
        body = b""
    except (aiohttp.ClientError, BrokenStreamError, OSError) as error:
        raise unreachable(error, peer) from error
    return status_error(answer.status, body, retry_after_seconds(answer.retry_after))


async def _read(answer: Answer) -> bytes:
    """Return the complete body. Raises MalformedAnswerError for one that is too long, and what its transport raises."""
    parts, size = [], 0
    while part := await answer.readany():
        parts.append(part)
        size += len(part)
        if size > _MAX_ANSWER_BYTES:
            raise MalformedAnswerError(f"the answer is longer than {_MAX_ANSWER_BYTES >> 20} MiB")
    return b"".join(parts)


def _wait_before_retry(error: ApiStatusError, header: str | None) -> float | None:
    """Return seconds to wait before the same request again; None = do not ask again. Where the server waited for a
    version and did not reach it, the caller has a better request: that for the newest state.
    """
    seconds = retry_after_seconds(header)
    if error.code == 429:
        return _PUT_OFF_SECONDS if seconds is None else seconds
    return seconds if error.code >= 500 and not error.too_large_version else None
