"""Wires the HTTP server: streams in, listeners out. Order: TLS files, main and read-only listeners, health listener."""

import asyncio
import logging
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

from aiohttp import web

from bus.beat import next_beat_in
from bus.interface import Change, Deleted, FollowedStream, Put
from bus.messages.beat import Beat
from bus.messages.streams import PODS_DESIRED, PODS_MIRRORS, PODS_STATUS, RUNTIME_PODS, SERVICES
from services.frame.launch import Context
from services.server.adapters.directory_watch import DirectoryWatch
from services.server.adapters.endpoints import Endpoints, Streams, health_handler
from services.server.adapters.front import Authorizer, EndpointHandler, Front, Gate, TokenReviewer
from services.server.adapters.http_limits import LONGEST, Handler
from services.server.adapters.listeners import Listener, listen, listen_until_open, why
from services.server.adapters.reviews import Reviews
from services.server.adapters.stream_endpoints import StreamEndpoints
from services.server.adapters.tls import ServingTls
from services.server.core import connections
from services.server.core.authentication import User
from services.server.core.authorization import Attributes
from services.server.core.health import Check, Health
from services.server.core.reviews import ReviewError
from services.server.core.routes import Endpoint, Served
from shared.cri.client import CriRuntime
from shared.cri.interface import Runtime
from shared.errors import OperatorError
from shared.model.runtime import RuntimePod

log = logging.getLogger(__name__)

_LOG_THREADS = 8  # log files read at the same time
_PODS_KNOWN_WITHIN = 3.0  # seconds after the start that a request waits for; then it is answered by what is known
_FLUSH = 60.0  # seconds between flushes of our own log, by which the `log` check is judged


class ServerService:
    """The compartment. `opened` is set once the main and read-only listeners stand; `listeners` names what is open."""

    def __init__(self, context: Context, runtime: Runtime) -> None:
        self._context, self._config = context, context.config
        self._clock, self._bus = context.clock, context.bus
        self.listeners: dict[str, Listener] = {}  # main, read-only, healthz
        self.opened = asyncio.Event()
        self._opening_healthz: asyncio.Task[None] | None = None
        others = [service for service in SERVICES if service != context.service]
        self.health = Health(others, self._config.sync_frequency, self._clock.monotonic())
        self._watch = DirectoryWatch()
        self._threads = ThreadPoolExecutor(_LOG_THREADS, thread_name_prefix="logs")
        self._pods_known = asyncio.Event()  # once the streams have been in step, or it has taken too long
        self._streams = streams = Streams(
            self._bus.follow(PODS_DESIRED, self._stream_changed),
            self._bus.follow(PODS_STATUS, self._stream_changed),
            self._bus.follow(RUNTIME_PODS, self._runtime_changed),
            self._bus.follow(PODS_MIRRORS, self._stream_changed),
        )
        self._bus.on_beat(self._heard)
        self.endpoints = Endpoints(self._config, streams, self._clock, self._threads, self._watch)
        self._stream_endpoints = StreamEndpoints(streams, runtime)
        self._runtime = runtime
        self._reviews = Reviews(self._bus, self._clock, self._config)

    async def run(self) -> None:
        """Serve until cancelled. Raises OperatorError when a listener other than health's cannot be opened."""
        async with AsyncExitStack() as stack:
            stack.callback(self._threads.shutdown, wait=False, cancel_futures=True)
            await stack.enter_async_context(self._watch)
            stack.push_async_callback(self._runtime.close)
            stack.push_async_callback(self._reviews.close)
            stack.push_async_callback(self._close)
            self._stream_changed(None)
            waiting = asyncio.get_running_loop().call_later(_PODS_KNOWN_WITHIN, self._pods_known.set)
            stack.callback(waiting.cancel)
            tls = await self._open()
            self.opened.set()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._turn(), name="turn")
                    tasks.create_task(self._flush_log(), name="flush-log")
                    if tls is not None:
                        tasks.create_task(tls.follow_files(self._watch), name="tls-files")
                    if self._config.healthz_port:
                        self._opening_healthz = tasks.create_task(self._open_healthz(), name="healthz")
            except ExceptionGroup as group:
                raise group.exceptions[0] from group

    async def _open(self) -> ServingTls | None:
        config = self._config
        handlers = {**self.endpoints.handlers, **self._stream_endpoints.handlers}
        for endpoint in handlers.keys() - {Endpoint.CONFIGZ}:
            handlers[endpoint] = self._once_pods_are_known(handlers[endpoint])
        handlers[Endpoint.HEALTHZ] = health_handler(self._checks)
        tls: ServingTls | None = None
        if config.enable_server:
            tls = ServingTls(config)
            gate = Gate(
                tls.clients,
                self._authorizer(),
                self._token_reviewer(),
                node=config.node_name,
                anonymous=config.anonymous_auth,
            )
            front = Front(Served(config.enable_debugging_handlers, self.health.names), handlers, gate)
            opening = listen(config.address, config.port, front, connections.MAIN, tls.context)
            self.listeners["main"] = await _opened(opening, config.address, config.port, "port")
        if config.read_only_port:
            front = Front(Served(debugging=False, checks=self.health.names), handlers)
            opening = listen(config.address, config.read_only_port, front, connections.READ_ONLY)
            self.listeners["read-only"] = await _opened(opening, config.address, config.read_only_port, "readOnlyPort")
        return tls

    def _once_pods_are_known(self, handler: EndpointHandler) -> EndpointHandler:
        """A server that was just started would answer that a running pod does not exist."""

        async def answer(request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
            await self._pods_known.wait()
            return await handler(request, parameters)

        return answer

    def _authorizer(self) -> Authorizer:
        async def always_allow(_question: Attributes, _address: str) -> bool:
            return True

        async def undecidable(_question: Attributes, _address: str) -> bool:
            raise ReviewError("no client provided, cannot use webhook authorization")

        if self._config.authorization_mode == "AlwaysAllow":
            return always_allow
        return self._reviews.allows if self._config.joins_cluster else undecidable

    def _token_reviewer(self) -> TokenReviewer | None:
        async def undecidable(_token: str, _address: str) -> User | None:
            raise ReviewError("no client provided, cannot use webhook authentication")

        if not self._config.webhook_authentication:
            return None
        return self._reviews.user_of if self._config.joins_cluster else undecidable

    async def _open_healthz(self) -> None:
        served = Served(debugging=False, checks=("ping",), pods=False, refusals=False)
        front: Handler = Front(served, {Endpoint.HEALTHZ: health_handler(lambda: (Check("ping"),))})
        address, port = self._config.healthz_bind_address, self._config.healthz_port
        self.listeners["healthz"] = await listen_until_open(address, port, front, connections.HEALTHZ)

    async def _close(self) -> None:
        await asyncio.gather(*(listener.close() for listener in self.listeners.values()))
        self.listeners.clear()

    async def stop_listening(self) -> None:
        """Release the ports for our successor; open requests and streams go on."""
        if self._opening_healthz is not None:
            self._opening_healthz.cancel()
        await asyncio.gather(*(listener.stop_listening() for listener in self.listeners.values()))

    async def drain(self) -> None:
        """Wait for the open requests and streams, for as long as a stream may idle (4 h where that has no limit)."""
        seconds = self._config.streaming_connection_idle_timeout or LONGEST
        await asyncio.gather(*(listener.drain(seconds) for listener in self.listeners.values()))

    async def _turn(self) -> None:
        while True:
            self._bus.progress("serve")
            await asyncio.sleep(next_beat_in(self._clock.monotonic()))

    async def _flush_log(self) -> None:
        """Flush our own log where a blocked one blocks only its own thread, and note when that last went through."""
        while True:
            await asyncio.to_thread(_flush_handlers)
            self.health.note_log_flushed(self._clock.monotonic())
            await asyncio.sleep(_FLUSH)

    def _checks(self) -> tuple[Check, ...]:
        return self.health.checks(self._clock.monotonic())

    def _heard(self, beat: Beat) -> None:
        self.health.note_beat(beat.service, beat.progress, self._clock.monotonic())

    def _stream_changed(self, _: object) -> None:
        streams: list[FollowedStream[Any]] = [self._streams.desired, self._streams.status, self._streams.runtime]
        if self._config.joins_cluster:  # without a cluster there are no mirror pods
            streams.append(self._streams.mirrors)
        if all(stream.complete and not stream.stale for stream in streams):
            self._pods_known.set()

    def _runtime_changed(self, change: Change[RuntimePod]) -> None:
        self._stream_changed(change)
        if isinstance(change, Put | Deleted):
            self.endpoints.wakers.wake(change.key)


def build(context: Context) -> ServerService:
    """The service for `services.frame.launch`."""
    config = context.config
    runtime = CriRuntime(config.container_runtime_endpoint, "", config.runtime_request_timeout)
    return ServerService(context, runtime)


async def _opened(opening: Awaitable[Listener], address: str, port: int, key: str) -> Listener:
    try:
        return await opening
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"cannot listen on {address} port {port}: {why(error)}",
            where=key,
            remedy=f"free the port, or set another address or {key} in the configuration",
        ) from error


def _flush_handlers() -> None:
    for handler in logging.getLogger().handlers:
        handler.flush()
