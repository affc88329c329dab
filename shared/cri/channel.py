"""One gRPC connection to a CRI endpoint: targets, deadlines, and gRPC's errors in the kubelet's words.

Knows nothing of pods; requests and answers are in `client` and `decode`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from cri_api.v1 import api_pb2_grpc

from shared.cri.call_metrics import CallMetrics
from shared.cri.interface import RuntimeCallError
from shared.metrics.registry import Registry
from shared.plugin_grpc.grpc_codes import code_name
from shared.process.deadlines import waiting_for
from shared.tracing.span import Attributes, Kind
from shared.tracing.tracer import Tracer

MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # the kubelet's own limit, both ways
MAX_LIST_BYTES = 128 * 1024 * 1024  # of all messages of a streamed list
MAX_LIST_MESSAGES = 200_000
_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A local socket costs nothing to try: a runtime that came back must be found within half a second, not after
    # gRPC's two minutes. The "minimum" is how long one connection attempt may take, for a socket that never answers.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.enable_http_proxy", 0),
)
_RPC: Attributes = {"rpc.system": "grpc"}
_LATE_SECONDS = 60.0  # after its deadline a call has failed; one that has not by then never returns
_CONNECT_ERRORS = ("No such file or directory", "Connection refused", "Permission denied")


def target(endpoint: str) -> str:
    """Return gRPC's target for an endpoint of the kubelet: `unix:///path`, a bare path, or `tcp://host:port`."""
    if endpoint.startswith("/"):
        return f"unix://{endpoint}"
    return endpoint.removeprefix("tcp://")


def socket_path(endpoint: str) -> str:
    """Return the path of a unix endpoint, else the endpoint itself, for messages."""
    return (
        "/" + target(endpoint).removeprefix("unix:").lstrip("/") if target(endpoint).startswith("unix:") else endpoint
    )


def explain(endpoint: str, code: str, details: str, *, core_call: bool = True) -> str:
    """Return the description of an error: the runtime's own words, or what is wrong with the socket."""
    path = socket_path(endpoint)
    if code == "Unavailable":
        for error in _CONNECT_ERRORS:
            if details.endswith(error):
                return (
                    'connection error: desc = "transport: Error while dialing: '
                    f'dial unix {path}: connect: {error.lower()}"'
                )
        if "before receiving SETTINGS frame" in details:
            return f"what listens on {path} does not answer: it hangs, or is not a container runtime (CRI over gRPC)"
        if "HTTP/2" in details or "SETTINGS frame" in details:
            return f"what listens on {path} does not speak gRPC, so it is not a container runtime (CRI): {details}"
    if code == "Unimplemented" and core_call:
        return f"what listens on {path} does not offer CRI v1 (runtime.v1.RuntimeService): {details}"
    return details


class CriChannel:
    """A lazily opened channel; `call` and `stream` raise RuntimeCallError and nothing else of gRPC's."""

    def __init__(self, endpoint: str, metrics: Registry | None = None, tracer: Tracer | None = None) -> None:
        self.endpoint, self._tracer = endpoint, tracer or Tracer()
        self.metrics = CallMetrics(metrics or Registry())
        self._channel: Any = None
        self._runtime: Any = None
        self._image: Any = None

    @property
    def runtime(self) -> Any:
        """The RuntimeService stub; opened on first use, because a channel belongs to the loop that is running then."""
        self._open()
        return self._runtime

    @property
    def image(self) -> Any:
        """The ImageService stub."""
        self._open()
        return self._image

    async def call(self, stub: Any, method: str, request: Any, timeout: float | None) -> Any:
        """Return one unary call; `timeout` in seconds, None = no deadline. Fails at once while there is no
        connection."""
        limit = None if timeout is None else timeout + _LATE_SECONDS
        try:
            with (
                self._tracer.span(f"runtime.v1/{method}", Kind.CLIENT, attributes=_RPC) as span,
                self.metrics.call(method),
                waiting_for(f"the answer to {method}", limit),
            ):
                traceparent = self._tracer.traceparent()
                carried = {"metadata": (("traceparent", traceparent),)} if traceparent else {}
                try:
                    return await getattr(stub, method)(request, timeout=timeout, wait_for_ready=False, **carried)
                except grpc.aio.AioRpcError as error:
                    span.fail(code_name(error.code()))
                    raise
        except grpc.aio.AioRpcError as error:
            raise self._translated(method, error) from None
        except grpc.aio.UsageError as error:  # the channel was closed meanwhile: this process ends
            raise RuntimeCallError(method, "Canceled", str(error)) from None

    async def merge(self, path: str, method: str, request: Any, answer: Any, timeout: float) -> bool:
        """Merge the messages of a server stream, which are of the kind of `answer`, into it; return False where the
        runtime does not have the stream. `path`: as in `/runtime.v1.RuntimeService/StreamContainers`; `method`: the
        call it counts as. `timeout` in seconds, for all of them. After an error `answer` is worth nothing.
        """
        sent = self._open().unary_stream(
            path, request_serializer=type(request).SerializeToString, response_deserializer=type(answer).FromString
        )
        size = count = 0
        with (
            self._tracer.span(path.lstrip("/"), Kind.CLIENT, attributes=_RPC) as span,
            self.metrics.call(method),
            waiting_for(f"the answer to {method}", timeout + _LATE_SECONDS),
        ):
            call = sent(request, timeout=timeout, wait_for_ready=False)
            try:
                async for message in call:
                    size, count = size + message.ByteSize(), count + 1
                    if size > MAX_LIST_BYTES or count > MAX_LIST_MESSAGES:
                        what = f"the list has more than {MAX_LIST_BYTES} bytes or {MAX_LIST_MESSAGES} messages"
                        raise RuntimeCallError(method, "ResourceExhausted", what)
                    answer.MergeFrom(message)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return False
                span.fail(code_name(error.code()))
                raise self._translated(method, error) from None
            except grpc.aio.UsageError as error:  # the channel was closed meanwhile: this process ends
                raise RuntimeCallError(method, "Canceled", str(error)) from None
            finally:
                call.cancel()
        return True

    async def disconnected(self) -> None:
        """Return when the connection that the last call used has ended."""
        with suppress(grpc.aio.UsageError):  # the channel was closed
            await self._open().wait_for_state_change(grpc.ChannelConnectivity.READY)

    async def stream(self, stub: Any, method: str, request: Any, decode: Callable[[Any], Any]) -> AsyncIterator[Any]:
        """Yield the messages of a server stream, until it ends or fails."""
        call = getattr(stub, method)(request, wait_for_ready=False)
        try:
            with self.metrics.call(method):
                async for message in call:
                    yield decode(message)
        except grpc.aio.AioRpcError as error:
            raise self._translated(method, error, core_call=False) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close the connection; calls in flight fail with Canceled."""
        channel, self._channel, self._runtime, self._image = self._channel, None, None, None
        if channel is not None:
            await channel.close()

    def _open(self) -> Any:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(target(self.endpoint), options=_OPTIONS)
            self._runtime = api_pb2_grpc.RuntimeServiceStub(self._channel)
            self._image = api_pb2_grpc.ImageServiceStub(self._channel)
        return self._channel

    def _translated(self, method: str, error: Any, *, core_call: bool = True) -> RuntimeCallError:
        code = code_name(error.code())
        return RuntimeCallError(method, code, explain(self.endpoint, code, error.details() or "", core_call=core_call))
