"""Takes every request of a listener: routes, authenticates, authorizes and answers it (server.md 1.2).

Does not read the content of requests."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from ssl import SSLObject

from aiohttp import web

from services.server.adapters.client_certificates import ClientCertificates, UntrustedError
from services.server.adapters.http_limits import count_as_authorized, end_with_request
from services.server.adapters.plain_answer import go_error, plain
from services.server.controllers.http_metrics import HttpMetrics
from services.server.core.access import authentication, authorization, bearer
from services.server.core.access.authentication import ANONYMOUS, User
from services.server.core.access.authorization import Attributes
from services.server.core.access.bearer import BearerError
from services.server.core.access.reviews import ReviewError
from services.server.core.listening.client_address import group_of, shown_address
from services.server.core.listening.log_interval import LogInterval
from services.server.core.listening.shares import Shares
from services.server.core.routes import MAX_STREAMS, POD_STREAMS, Endpoint, Refusal, Route, ServedEndpoints, resolve
from services.server.core.streams.stream_parameters import is_websocket, offered_protocols
from shared.tracing.context import parse_traceparent
from shared.tracing.span import Kind
from shared.tracing.tracer import Scope, Tracer

log = logging.getLogger(__name__)

EndpointHandler = Callable[[web.BaseRequest, tuple[str, ...]], Awaitable[web.StreamResponse]]
# Both functions also take the client's address, and raise ReviewError when they cannot decide.
Authorizer = Callable[[Attributes, str], Awaitable[bool]]
TokenReviewer = Callable[[str, str], Awaitable[User | None]]  # None = the token is no user's


# The name of a request's user; "" or absent = the request was sent without credentials.
USER = web.RequestKey("user", str)


class AuthFilter:
    """Authenticates and authorizes the requests of the main listener. Where `review_token` is None, tokens are
    ignored."""

    def __init__(
        self,
        clients: ClientCertificates,
        authorize: Authorizer,
        review_token: TokenReviewer | None,
        *,
        node: str,
        anonymous: bool,
    ) -> None:
        self._clients, self._authorize, self._review_token = clients, authorize, review_token
        self._node, self._anonymous = node, anonymous
        self._log = LogInterval()

    async def refuse(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer that refuses the request, or None to permit it."""
        user = await self._user(request)
        if user is None:
            return plain(401, authentication.UNAUTHORIZED)
        asked = authorization.questions(user, request.method, request.path, self._node)
        address = group_of(request.remote or "")
        for question in asked:
            try:
                if await self._authorize(question, address):
                    # A request that is allowed without credentials does not make its connection an authorized one.
                    taken = user is ANONYMOUS or count_as_authorized(request)
                    request[USER] = "" if user is ANONYMOUS else user.name
                    return None if taken else plain(503, "too many connections\n")
            except ReviewError as error:
                if count := self._log.count("authorization", time.monotonic()):
                    log.error("%s: %s (%d since the last line)", authorization.error(question), error, count)
                return plain(500, authorization.error(question))
        return plain(403, authorization.forbidden(asked))

    async def _user(self, request: web.BaseRequest) -> User | None:
        connection = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        found: User | None = None
        failed = False
        if isinstance(connection, SSLObject):
            try:
                found = self._clients.find_user(connection)
                if found is not None and self._clients.is_outdated(connection):
                    end_with_request(request)
            except UntrustedError as error:
                self._refused("client certificate", request, error)
                end_with_request(request)  # the next handshake may be with another certificate
                failed = True
        if found is None and self._review_token is not None:
            try:
                found, offered = await _token_user(request, self._review_token)
                failed = failed or offered
            except (BearerError, ReviewError) as error:
                self._refused("bearer token", request, error)
                failed = True
        return authentication.authenticate(found, failed=failed, anonymous=self._anonymous)

    def _refused(self, what: str, request: web.BaseRequest, error: Exception) -> None:
        """Log a refusal, at most once a minute for each reason: the text may contain what the client sent."""
        if count := self._log.count(f"{what} {type(error).__name__}", time.monotonic()):
            log.info(
                "refused a %s of %s: %s (%d since the last line)", what, shown_address(request.remote), error, count
            )


async def _token_user(request: web.BaseRequest, review: TokenReviewer) -> tuple[User | None, bool]:
    """Return the user of the first valid token, and whether there was any token. Raise BearerError, ReviewError."""
    address = group_of(request.remote or "")
    token = bearer.header_token(request.headers.get("Authorization", ""))
    user = await review(token, address) if token else None
    if user is None and is_websocket(request.headers.getall("Connection", ()), request.headers.get("Upgrade", "")):
        protocols = offered_protocols(request.headers.getall("Sec-WebSocket-Protocol", ()))
        second = bearer.protocol_token(protocols)
        user, token = (await review(second, address) if second else None), token or second
    return user, bool(token)


class RequestHandler:
    """Handles the requests of one listener. Without `auth` every request that it serves is permitted.

    With `auth`, the open streams are limited by namespace: all tenants of a cluster come as one user from the addresses
    of the API server, but the right to open a stream is given by namespace. Without `auth` the clients are those of
    this machine, and few."""

    def __init__(
        self,
        served: ServedEndpoints,
        handlers: Mapping[Endpoint, EndpointHandler],
        auth: AuthFilter | None = None,
        metrics: HttpMetrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._served, self._handlers, self._auth, self._metrics = served, handlers, auth, metrics
        self._tracer = tracer or Tracer()
        self._streams = Shares(MAX_STREAMS)
        self._log = LogInterval()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if self._metrics is None:
            return await self._respond(request)
        server_type = "readonly" if self._auth is None else "readwrite"
        with self._metrics.request(request.method, request.path, server_type):
            return await self._respond(request)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._answer(request)
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path)
            if request.writer.output_size:
                # The answer has begun: only a broken connection shows the client that it is incomplete.
                raise ConnectionAbortedError("the answer had begun") from error
            response = plain(500, "internal server error\n")
        if log.isEnabledFor(logging.DEBUG):
            client = shown_address(request.remote)
            log.debug("%s %s from %s: %d", request.method, request.path, client, response.status)
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        query = request.rel_url.raw_query_string
        accept = ",".join(request.headers.getall("Accept", ()))
        meant = resolve(request.method, request.path, query, accept, self._served)
        if isinstance(meant, Refusal) and meant.open:
            return _refusal(meant)
        if self._auth is not None and (refused := await self._auth.refuse(request)) is not None:
            return refused
        if isinstance(meant, Refusal):
            return _refusal(meant)
        if self._auth is None or meant.endpoint not in POD_STREAMS:
            return await self._handle(request, meant)
        namespace = meant.parameters[0]
        if not self._streams.take(namespace):
            return self._refuse_stream(namespace)
        try:
            return await self._handle(request, meant)
        finally:
            self._streams.give_back(namespace)

    async def _handle(self, request: web.BaseRequest, meant: Route) -> web.StreamResponse:
        with self._span(request, meant.endpoint) as span:
            response = await self._handlers[meant.endpoint](request, meant.parameters)
            span.set("http.response.status_code", response.status)
            return response

    def _refuse_stream(self, namespace: str) -> web.Response:
        """Refuse a stream, without Retry-After: clients of the API server would wait, and not show the reason."""
        of_namespace, total = self._streams.taken_by(namespace), self._streams.total
        text = f"too many streams: {of_namespace} of namespace {namespace!r}, {total} of all namespaces, of at most"
        text += f" {MAX_STREAMS}; end some exec, attach, port-forward or logs of its pods on this node"
        if count := self._log.count("stream", time.monotonic()):
            log.warning("refused a stream: %s (%d since the last line)", text, count)
        return plain(429, text + "\n")

    def _span(self, request: web.BaseRequest, endpoint: Endpoint) -> Scope:
        """Continue the trace of an authorized client. On a port without authorization begin a new trace that links to
        the client's."""
        if not self._tracer.enabled:
            return self._tracer.span("")
        context = parse_traceparent(request.headers.get("traceparent", ""))
        parent, link = (None, context) if self._auth is None else (context, None)
        return self._tracer.span(
            endpoint.value,
            Kind.SERVER,
            parent=parent,
            link=link,
            attributes={"http.request.method": request.method, "http.route": endpoint.value},
        )


def _refusal(refusal: Refusal) -> web.Response:
    response = (go_error if refusal.go_error else plain)(refusal.status, refusal.body)
    response.headers.update(refusal.headers)
    return response
