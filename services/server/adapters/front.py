"""Every request's way in: route, authentication, authorization, handler (server.md 1.2). Knows no content."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from ssl import SSLObject

from aiohttp import web

from services.server.adapters.tls import ServingTls
from services.server.core import authentication, authorization
from services.server.core.authentication import User
from services.server.core.authorization import Attributes
from services.server.core.routes import Endpoint, Refusal, Served, resolve

_LOG = logging.getLogger(__name__)

EndpointHandler = Callable[[web.BaseRequest, tuple[str, ...]], Awaitable[web.StreamResponse]]
Authorizer = Callable[[Attributes], Awaitable[bool]]  # raises AuthorizerError when it cannot decide


class AuthorizerError(Exception):
    """Whether the user may do it could not be found out."""


class Gate:
    """Authentication and authorization of the main listener."""

    def __init__(
        self, tls: ServingTls, authorize: Authorizer, *, node: str, anonymous: bool, tokens_expected: bool
    ) -> None:
        self._tls, self._authorize = tls, authorize
        self._node, self._anonymous, self._tokens_expected = node, anonymous, tokens_expected

    async def refuse(self, request: web.BaseRequest) -> web.Response | None:
        """The refusal, or None to let the request through."""
        user = self._user(request)
        if user is None:
            return plain(401, authentication.UNAUTHORIZED)
        asked = authorization.questions(user, request.method, request.path, self._node)
        for question in asked:
            try:
                if await self._authorize(question):
                    return None
            except AuthorizerError as error:
                _LOG.error("%s: %s", authorization.error(question), error)
                return plain(500, authorization.error(question))
        return plain(403, authorization.forbidden(asked))

    def _user(self, request: web.BaseRequest) -> User | None:
        connection = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        certificate: User | None = None
        # A token that should be checked and cannot be is a failure, even where anonymous access is allowed.
        failed = self._tokens_expected and request.headers.get("Authorization", "").lower().startswith("bearer ")
        if isinstance(connection, SSLObject):
            certificate = self._tls.user_of(connection)
            if certificate is not None and self._tls.outlived(connection):
                certificate, failed = None, True
        return authentication.authenticate(certificate, failed=failed, anonymous=self._anonymous)


class Front:
    """The handler of one listener. Without a gate everybody may do everything it serves."""

    def __init__(self, served: Served, handlers: Mapping[Endpoint, EndpointHandler], gate: Gate | None = None) -> None:
        self._served, self._handlers, self._gate = served, handlers, gate

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        try:
            response = await self._answer(request)
        except ConnectionError:
            raise
        except Exception as error:
            _LOG.exception("%s %s failed", request.method, request.path_qs)
            if request.writer.output_size:
                # The answer has begun: only a broken connection can still tell the client that it is not whole.
                raise ConnectionAbortedError("the answer had begun") from error
            response = plain(500, "internal server error\n")
        _LOG.debug("%s %s from %s: %d", request.method, request.path_qs, request.remote, response.status)
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        query = request.rel_url.raw_query_string
        accept = ",".join(request.headers.getall("Accept", ()))
        meant = resolve(request.method, request.path, query, accept, self._served)
        if isinstance(meant, Refusal) and meant.open:
            return _refusal(meant)
        if self._gate is not None and (refused := await self._gate.refuse(request)) is not None:
            return refused
        if isinstance(meant, Refusal):
            return _refusal(meant)
        return await self._handlers[meant.endpoint](request, meant.parameters)


def plain(status: int, body: str) -> web.Response:
    """A plain text answer."""
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    return web.Response(status=status, body=body.encode("utf-8", "replace"), headers=headers)


def _refusal(refusal: Refusal) -> web.Response:
    response = plain(refusal.status, refusal.body + ("\n" if refusal.go_error else ""))
    if refusal.go_error:
        response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.update(refusal.headers)
    return response
