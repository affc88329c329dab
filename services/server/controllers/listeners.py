"""Opens the listeners of this process in order, hands the ports over to a successor, and waits for open streams.

TLS files come first, then the main and the read-only listener. The local socket and the health listener follow, and are
tried until they can be opened."""

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial
from pathlib import Path

from aiohttp import web

from services.server.adapters.http_limits import MAX_REQUEST_SECONDS, Handler
from services.server.adapters.listener import Listener, error_text, listen, listen_at, open_at_last
from services.server.adapters.plain_answer import plain
from services.server.adapters.tls import ServingTls
from services.server.controllers.endpoints import health_handler
from services.server.controllers.health_checks import HealthChecks
from services.server.controllers.http_metrics import HttpMetrics
from services.server.controllers.request_handler import (
    AuthFilter,
    Authorizer,
    EndpointHandler,
    RequestHandler,
    TokenReviewer,
)
from services.server.controllers.reviews import Reviews
from services.server.core.access.authentication import User
from services.server.core.access.authorization import Attributes
from services.server.core.access.reviews import ReviewError
from services.server.core.listening import connections
from services.server.core.pages.health import Check
from services.server.core.routes import Endpoint, ServedEndpoints, is_loopback_host
from shared.agent.places import LOCAL_SOCKET, PAGE_ADDRESS
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.errors import OperatorError
from shared.tracing.tracer import Tracer

_GATES = {
    Endpoint.CHECKPOINT: "ContainerCheckpoint",
    Endpoint.STATUSZ: "ComponentStatusz",
    Endpoint.FLAGZ: "ComponentFlagz",
}


class Listeners:
    """Has the open listeners in `by_name`; `opened` is set once the main and the read-only listener are open."""

    def __init__(
        self,
        config: EffectiveConfig,
        health: HealthChecks,
        reviews: Reviews,
        metrics: HttpMetrics,
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer
        self._config, self._health, self._reviews, self._metrics = config, health, reviews, metrics
        self.by_name: dict[str, Listener] = {}  # the names are main, read-only, local, page, healthz
        self.opened = asyncio.Event()
        self._opening: list[asyncio.Task[None]] = []

    async def open(self, handlers: Mapping[Endpoint, EndpointHandler]) -> ServingTls | None:
        """Open the main and the read-only listener. Return the TLS of the main one, or None where it is off. Raise
        OperatorError when an address cannot be bound."""
        config, tls = self._config, None
        if config.enable_server:
            tls = ServingTls(config)
            auth = AuthFilter(
                tls.clients,
                self._authorizer(),
                self._token_reviewer(),
                node=config.node_name,
                anonymous=config.anonymous_auth,
            )
            served = main_served(config, self._health.names)
            handler = RequestHandler(served, handlers, auth, self._metrics, self._tracer)
            opening = listen(config.address, config.port, handler, connections.MAIN, tls.context)
            main = self.by_name["main"] = await _opened(opening, config.address, config.port, "port")
            tls.on_new_client_ca = partial(main.end_tls, tls.clients.is_revoked)
        if config.read_only_port:
            served = ServedEndpoints(debugging=False, checks=self._health.names)
            handler = RequestHandler(served, handlers, metrics=self._metrics, tracer=self._tracer)
            opening = listen(config.address, config.read_only_port, handler, connections.READ_ONLY)
            self.by_name["read-only"] = await _opened(opening, config.address, config.read_only_port, "readOnlyPort")
        self.opened.set()
        return tls

    def start(self, tasks: asyncio.TaskGroup, handlers: Mapping[Endpoint, EndpointHandler]) -> None:
        """Add tasks to `tasks` that open the local socket and, where the configuration has them, the listeners of
        health and of the node page."""
        self._opening.append(tasks.create_task(self._open_local(handlers), name="local"))
        if self._config.node_page_port:
            self._opening.append(tasks.create_task(self._open_page(handlers), name="page"))
        if self._config.healthz_port:
            self._opening.append(tasks.create_task(self._open_healthz(), name="healthz"))

    async def close(self) -> None:
        """Close all listeners and their connections."""
        await asyncio.gather(*(listener.close() for listener in self.by_name.values()))
        self.by_name.clear()

    async def stop_listening(self) -> None:
        """Release the ports for the successor; open requests and streams stay open."""
        for opening in self._opening:
            opening.cancel()
        await asyncio.gather(*(listener.stop_listening() for listener in self.by_name.values()))

    async def drain(self) -> None:
        """Wait for the open requests and streams, at most as long as a stream may idle (4 h where idling has no
        limit)."""
        seconds = self._config.streaming_connection_idle_timeout or MAX_REQUEST_SECONDS
        await asyncio.gather(*(listener.drain(seconds) for listener in self.by_name.values()))

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

    async def _open_local(self, handlers: Mapping[Endpoint, EndpointHandler]) -> None:
        """Open the local socket. It needs no authorization: only root and the agent's user can open it, who may do the
        same with the runtime's own tools."""
        handler = RequestHandler(ServedEndpoints(debugging=True, checks=self._health.names), handlers)
        path = Path(self._config.run_dir) / LOCAL_SOCKET
        opening = partial(listen_at, path, handler, connections.LOCAL)
        self.by_name["local"] = await open_at_last(opening, str(path))

    async def _open_page(self, handlers: Mapping[Endpoint, EndpointHandler]) -> None:
        """Open the listener of the node page. It answers only requests for this machine's name, so that a site whose
        name resolves to this address cannot read the page in a local browser."""
        only = (Endpoint.NODE_PAGE, Endpoint.EXPLAIN)
        served = ServedEndpoints(debugging=True, checks=(), refusals=False, only=only)
        requests = RequestHandler(served, handlers)

        async def answer_this_machine(request: web.BaseRequest) -> web.StreamResponse:
            if not is_loopback_host(request.host):
                return plain(403, "this port is for 127.0.0.1 and localhost\n")
            return await requests(request)

        port = self._config.node_page_port
        opening = partial(listen, PAGE_ADDRESS, port, answer_this_machine, connections.READ_ONLY)
        self.by_name["page"] = await open_at_last(opening, f"{PAGE_ADDRESS} port {port}")

    async def _open_healthz(self) -> None:
        served = ServedEndpoints(debugging=False, checks=("ping",), pods=False, refusals=False)
        handler: Handler = RequestHandler(served, {Endpoint.HEALTHZ: health_handler(lambda: (Check("ping"),))})
        address, port = self._config.healthz_bind_address, self._config.healthz_port
        opening = partial(listen, address, port, handler, connections.HEALTHZ)
        self.by_name["healthz"] = await open_at_last(opening, f"{address} port {port}")


def main_served(config: EffectiveConfig, checks: tuple[str, ...]) -> ServedEndpoints:
    """Return what the main listener serves."""
    switches = {
        Endpoint.LOGS: config.enable_system_log_handler,
        Endpoint.PPROF: config.enable_profiling_handler,
        Endpoint.DEBUG_FLAGS: config.enable_debug_flags_handler,
    }
    return ServedEndpoints(
        config.enable_debugging_handlers,
        checks,
        resets=True,
        gated=tuple(each for each, gate in _GATES.items() if enabled(config.feature_gates, gate)),
        disabled=tuple(each for each, on in switches.items() if not on),
    )


async def _opened(opening: Awaitable[Listener], address: str, port: int, key: str) -> Listener:
    try:
        return await opening
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"cannot listen on {address} port {port}: {error_text(error)}",
            where=key,
            remedy=f"free the port, or set another address or {key} in the configuration",
        ) from error
