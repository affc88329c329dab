"""Answers exec, attach, portForward and run: finds the target, asks the runtime for a URL, and proxies the bytes.

An open stream needs neither the bus nor another process of ours (server.md 11, 12)."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from msgspec import Struct

from bus.messages.sources import DesiredPod
from services.server.adapters.plain_answer import plain
from services.server.adapters.upgrade_proxy import proxy, responder_error
from services.server.adapters.websocket_streams import translate, tunnel
from services.server.controllers.pod_streams import PodStreams
from services.server.controllers.request_handler import EndpointHandler
from services.server.core.pods import stream_target
from services.server.core.pods.pod_lists import find_pod
from services.server.core.pods.stream_target import TargetNotFoundError
from services.server.core.routes import Endpoint
from services.server.core.streams import stream_parameters
from services.server.core.streams.stream_parameters import RequestedStreams, StreamRequestError, Upgrade
from shared.cri.interface import Runtime, RuntimeCallError, StreamOptions
from shared.metrics.family import counter
from shared.metrics.registry import Registry
from shared.model.objects import Object
from shared.model.runtime import RuntimePod

WEBSOCKETS = counter("kubelet_websocket_streaming_requests_total", "Streams over WebSocket by kind.", "subresource")
_RETRY_AFTER = "60"  # seconds; sent when too many streams wait for the runtime

_Refused = web.Response


class _ClientUpgrade(Struct, frozen=True):
    """How the client upgrades its connection, and the WebSocket sub-protocols it offers."""

    upgrade: Upgrade
    protocols: tuple[str, ...]


class StreamEndpoints:
    """Answers stream requests; `runtime` is asked for URLs, and runs the commands of /run."""

    def __init__(self, streams: PodStreams, runtime: Runtime, metrics: Registry) -> None:
        self._streams, self._runtime = streams, runtime
        self._websockets = metrics.counter(WEBSOCKETS)

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {
            Endpoint.EXEC: self.exec,
            Endpoint.ATTACH: self.attach,
            Endpoint.PORT_FORWARD: self.port_forward,
            Endpoint.RUN: self.run,
        }

    async def exec(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/exec/{namespace}/{pod}[/{uid}]/{container}`."""
        self._count(request, "exec")
        query, (namespace, pod_name, *uid, container) = request.rel_url.raw_query_string, parameters
        try:
            wanted = stream_parameters.requested_streams(query)
            desired = self._pod(namespace, pod_name)
            target = stream_target.exec_target(container, *self._known(desired), is_pod=self._means(uid, desired))
        except (StreamRequestError, LookupError, TargetNotFoundError) as error:
            return _refusal(error)

        def ask() -> Awaitable[str]:
            return self._runtime.exec_url(target, stream_parameters.command(query), _options(wanted))

        return await _remote_command(request, ask, wanted)

    async def attach(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/attach/{namespace}/{pod}[/{uid}]/{container}`."""
        self._count(request, "attach")
        namespace, pod_name, *uid, container = parameters
        try:
            wanted = stream_parameters.requested_streams(request.rel_url.raw_query_string)
            desired = self._pod(namespace, pod_name)
            target, tty = stream_target.attach_target(
                container, desired.pod, *self._known(desired), is_pod=self._means(uid, desired)
            )
        except (StreamRequestError, LookupError, TargetNotFoundError) as error:
            return _refusal(error)
        wanted = wanted.with_tty(tty)

        def ask() -> Awaitable[str]:
            return self._runtime.attach_url(target, _options(wanted))

        return await _remote_command(request, ask, wanted)

    async def port_forward(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/portForward/{namespace}/{pod}[/{uid}]`."""
        websocket = self._count(request, "portforward")
        namespace, pod_name, *uid = parameters
        client = _client_upgrade(request, forward=True)
        ports: tuple[int, ...] = ()
        try:
            if websocket and client.upgrade is not Upgrade.TUNNEL:
                ports = stream_parameters.forwarded_ports(request.rel_url.raw_query_string)
            desired = self._pod(namespace, pod_name)
            if uid and uid[0] != desired.uid:
                return plain(404, "pod not found")
            target = stream_target.forward_target(desired.pod, self._streams.runtime.state.get(desired.uid))
        except (StreamRequestError, LookupError, TargetNotFoundError) as error:
            return _refusal(error)
        if client.upgrade is Upgrade.NONE:
            return responder_error("Upgrade request required")
        url = await _url(self._runtime.port_forward_url(target, ports))
        if isinstance(url, _Refused):
            return url
        if client.upgrade is Upgrade.TUNNEL:
            return await tunnel(request, url, stream_parameters.tunnelled_protocols(client.protocols))
        return await proxy(request, url)

    async def run(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `POST /run/{namespace}/{pod}[/{uid}]/{container}`."""
        namespace, pod_name, *uid, container = parameters
        words = stream_parameters.run_command(request.rel_url.raw_query_string)
        try:
            desired = self._pod(namespace, pod_name)
            target = stream_target.exec_target(container, *self._known(desired), is_pod=self._means(uid, desired))
            result = await self._runtime.exec_sync(target, words, 0)
        except (LookupError, TargetNotFoundError) as error:
            return _refusal(error)
        except RuntimeCallError as error:
            return plain(500, str(error))
        if result.exit_code:
            stderr = result.stderr.decode("utf-8", "replace")
            return plain(500, f"command '{' '.join(words)}' exited with {result.exit_code}: {stderr}")
        return web.Response(body=result.stdout + result.stderr, headers={"Content-Type": "application/json"})

    def _count(self, request: web.BaseRequest, subresource: str) -> bool:
        """Return whether the client uses a WebSocket, and count it."""
        headers = request.headers
        used = stream_parameters.is_websocket(headers.getall("Connection", ()), headers.get("Upgrade", ""))
        if used:
            self._websockets.inc(subresource)
        return used

    def _pod(self, namespace: str, name: str) -> DesiredPod:
        found = find_pod(self._streams.desired.state.values(), namespace, name)
        if found is None:
            raise LookupError("pod does not exist")
        return found

    def _known(self, desired: DesiredPod) -> tuple[Object, RuntimePod | None]:
        return self._streams.status_of(desired), self._streams.runtime.state.get(desired.uid)

    def _means(self, uid: list[str], desired: DesiredPod) -> bool:
        return stream_target.names_pod("".join(uid), desired, self._streams.mirrors.state.values())


async def _remote_command(
    request: web.BaseRequest, ask: Callable[[], Awaitable[str]], wanted: RequestedStreams
) -> web.StreamResponse:
    client = _client_upgrade(request, forward=False)
    if client.upgrade is Upgrade.NONE:
        return responder_error("Upgrade request required")
    url = await _url(ask())
    if isinstance(url, _Refused):
        return url
    if client.upgrade is Upgrade.TRANSLATE:
        return await translate(request, url, wanted)
    return await proxy(request, url)


async def _url(asked: Awaitable[str]) -> str | web.Response:
    """Return the runtime's URL, or the answer to the client when the runtime refuses one."""
    try:
        return await asked
    except RuntimeCallError as error:
        status = {"NotFound": 404, "ResourceExhausted": 429}.get(error.code, 500)
        response = plain(status, str(error))
        if status == 429:
            response.headers["Retry-After"] = _RETRY_AFTER
        return response


def _client_upgrade(request: web.BaseRequest, *, forward: bool) -> _ClientUpgrade:
    headers = request.headers
    protocols = stream_parameters.offered_protocols(headers.getall("Sec-WebSocket-Protocol", ()))
    connection, upgrade = headers.getall("Connection", ()), headers.get("Upgrade", "")
    return _ClientUpgrade(stream_parameters.upgrade_of(connection, upgrade, protocols, forward=forward), protocols)


def _options(wanted: RequestedStreams) -> StreamOptions:
    return StreamOptions(stdin=wanted.stdin, stdout=wanted.stdout, stderr=wanted.stderr, tty=wanted.tty)


def _refusal(error: Exception) -> web.Response:
    status = 400 if isinstance(error, StreamRequestError) else 404 if isinstance(error, LookupError) else 500
    return plain(status, str(error.args[0]))
