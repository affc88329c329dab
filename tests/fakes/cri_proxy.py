"""Between an agent and a real container runtime: forwards CRI calls as bytes, records them, and injects faults.

Rules name a method and, where wanted, the pod it is about: `delay`, `fail`, `hang` (before or after the runtime has
done it), `hide` and `invent` for entries of lists and single reads, `drop_connections` at any time.
Runs in the event loop of the test.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from cri_api.v1 import api_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from shared.cri.channel import MAX_MESSAGE_BYTES

CHANGING = frozenset(
    {
        *("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer"),
        *(
            "RemoveContainer",
            "ExecSync",
            "UpdateContainerResources",
            "UpdatePodSandboxResources",
            "UpdateRuntimeConfig",
        ),
        *("PullImage", "RemoveImage", "ReopenContainerLog", "CheckpointContainer"),
    }
)
_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
)
_METHODS = {
    f"/{service.full_name}/{method.name}": method
    for service in api_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
_BY_NAME = {code.name.replace("_", "").lower(): code for code in grpc.StatusCode} | {
    "canceled": grpc.StatusCode.CANCELLED
}


@dataclass
class Rule:
    """What becomes of the next `times` calls of a method (0 = of all). `reached`: a call ran into it; `release` lets a
    hung one go on."""

    method: str
    pod: str = ""
    code: str = ""  # to fail with, in the kubelet's spelling
    text: str = ""
    seconds: float = 0.0
    hangs: bool = False
    after: bool = False  # the runtime does it first
    times: int = 1
    count: int = 0  # calls that ran into it
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Recorded:
    """One changing call, noted when it was answered. `request` and `response` as in the recordings of a Go kubelet:
    proto field names, zero values absent, 64-bit integers as texts."""

    t: float  # seconds since the proxy began or `forget_calls`
    method: str
    pod: str  # name of the pod, "" where it is about none
    request: dict[str, Any]
    code: str
    response: dict[str, Any]


class CriProxy:
    """`async with CriProxy(containerd.endpoint, directory / "proxy.sock") as proxy:`; `endpoint` is what agents get."""

    def __init__(self, target: str, socket: Path) -> None:
        self.target, self.socket = target, socket
        self.calls: list[Recorded] = []
        self.rules: list[Rule] = []
        self.hidden: set[str] = set()  # ids of containers and sandboxes
        self.invented: list[Any] = []  # api_pb2.Container and api_pb2.PodSandbox to be listed besides
        self.forwards_others = False  # unary methods of other services than CRI; else the runtime has CRI alone
        # Called as a call is sent on, with its method, the request and the call.
        self.on_forward: Callable[[str, bytes, Any], None] | None = None
        self._pods: dict[str, str] = {}  # id of container or sandbox -> name of the pod
        self._began = time.monotonic()
        self._server: Any = None
        self._channel: Any = None

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    @property
    def seconds(self) -> float:
        """Since it began or forgot its calls: what `Recorded.t` counts."""
        return time.monotonic() - self._began

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self.target, options=_OPTIONS)
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        await self._server.stop(0)
        await self._channel.close()

    async def _listen(self) -> None:
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self._server.add_insecure_port(self.endpoint)
        await self._server.start()

    # Misbehaving

    def fail(self, method: str, text: str = "injected", *, code: str = "Unknown", **further: Any) -> Rule:
        """The next `times` calls fail; with `after`, once the runtime has done them: their answer is lost."""
        return self._add(Rule(method, code=code, text=text, **further))

    def delay(self, method: str, seconds: float, **further: Any) -> Rule:
        """The next `times` calls take longer, before or (`after`) after the runtime has done them."""
        return self._add(Rule(method, seconds=seconds, **further))

    def hang(self, method: str, **further: Any) -> Rule:
        """The next `times` calls hang until the rule's `release` is set or the caller goes away."""
        return self._add(Rule(method, hangs=True, **further))

    def hide(self, *ids: str) -> None:
        """Lists leave these containers and sandboxes out; a read of one gets NotFound."""
        self.hidden.update(ids)

    def show(self, *ids: str) -> None:
        """No longer."""
        self.hidden.difference_update(ids)

    def invent(self, message: Any) -> None:
        """Lists show this api_pb2.Container or api_pb2.PodSandbox besides what there is."""
        self.invented.append(message)

    async def drop_connections(self) -> None:
        """Every connection ends, with whatever is going on over it; at once there is a socket again."""
        await self._server.stop(0)
        with suppress(FileNotFoundError):
            self.socket.unlink()
        await self._listen()

    def clear(self) -> None:
        """Behave."""
        for rule in self.rules:
            rule.release.set()
        self.rules.clear()
        self.hidden.clear()
        self.invented.clear()

    def _add(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def rule_for(self, method: str, pod: str) -> Rule | None:
        """The first rule that this call runs into; it is used up with its last one."""
        for rule in self.rules:
            if rule.method == method and rule.pod in ("", pod):
                rule.count += 1
                if rule.count == rule.times:
                    self.rules.remove(rule)
                return rule
        return None

    # The record

    def forget_calls(self) -> None:
        """Clear the record."""
        self.calls.clear()
        self._began = time.monotonic()

    def methods(self, pod: str = "", *, done: bool = False) -> list[str]:
        """The changing calls, in the order they were answered; of one pod where named; `done`: those that succeeded."""
        return [c.method for c in self.calls if pod in ("", c.pod) and (c.code == "OK" or not done)]

    def note(self, method: Any, pod: str, request: bytes, code: str, response: bytes) -> None:
        """Record a changing call that has been answered."""
        if method.name in CHANGING:
            asked, sent = _decoded(method.input_type, request), _decoded(method.output_type, response)
            answered = _as_dict(sent) if method.name in ("RunPodSandbox", "CreateContainer") and code == "OK" else {}
            self.calls.append(Recorded(round(self.seconds, 3), method.name, pod, _as_dict(asked), code, answered))

    def pod_of(self, method: Any, request: bytes) -> str:
        """The name of the pod a call is about, as far as it was created through this proxy."""
        message = _decoded(method.input_type, request)
        named = {"RunPodSandbox": "config", "PullImage": "sandbox_config"}.get(method.name)
        if named is not None:
            return str(getattr(message, named).metadata.name)
        for name in ("container_id", "pod_sandbox_id"):
            if name in message.DESCRIPTOR.fields_by_name and (pod := self._pods.get(getattr(message, name), "")):
                return pod
        return ""

    def learn(self, method: Any, pod: str, response: bytes) -> None:
        """Which pod a new id belongs to."""
        if pod and method.name in ("RunPodSandbox", "CreateContainer"):
            created = _decoded(method.output_type, response)
            self._pods[created.pod_sandbox_id if method.name == "RunPodSandbox" else created.container_id] = pod

    def retouch(self, method: Any, request: bytes, response: bytes) -> bytes:
        """A list as it is to be shown."""
        if method.name not in ("ListContainers", "ListPodSandbox") or not (self.hidden or self.invented):
            return response
        listed = _decoded(method.output_type, response)
        containers = method.name == "ListContainers"
        kind = api_pb2.Container if containers else api_pb2.PodSandbox
        entries = listed.containers if containers else listed.items
        wanted = dict(_decoded(method.input_type, request).filter.label_selector)
        made_up = [m for m in self.invented if isinstance(m, kind) and wanted.items() <= dict(m.labels).items()]
        kept = [entry for entry in (*entries, *made_up) if entry.id not in self.hidden]
        del entries[:]
        entries.extend(kept)
        return bytes(listed.SerializeToString())

    def is_hidden(self, method: Any, request: bytes) -> bool:
        """Whether the call looks at one that is hidden."""
        if not self.hidden or method.name not in ("ContainerStatus", "PodSandboxStatus"):
            return False
        message = _decoded(method.input_type, request)
        return (message.container_id if method.name == "ContainerStatus" else message.pod_sandbox_id) in self.hidden

    def upstream(self, path: str, *, streams: bool = False) -> Any:
        """The runtime's own method, on bytes."""
        return self._channel.unary_stream(path) if streams else self._channel.unary_unary(path)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Takes every method of CRI."""

    def __init__(self, proxy: CriProxy) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        method = _METHODS.get(path)
        if method is None:
            return grpc.unary_unary_rpc_method_handler(self._other(path)) if self._proxy.forwards_others else None
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(path))
        return grpc.unary_unary_rpc_method_handler(self._single(path, method))

    def _other(self, path: str) -> Callable[..., Any]:
        async def handle(request: bytes, context: Any) -> bytes:
            metadata = [(key, value) for key, value in context.invocation_metadata() if key == "containerd-namespace"]
            try:
                sent = self._proxy.upstream(path)(request, timeout=context.time_remaining(), metadata=metadata)
                return bytes(await sent)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
            raise AssertionError("unreachable")

        return handle

    def _streaming(self, path: str) -> Callable[..., Any]:
        async def handle(request: bytes, context: Any) -> Any:
            try:
                async for message in self._proxy.upstream(path, streams=True)(request):
                    yield message
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")

        return handle

    def _single(self, path: str, method: Any) -> Callable[..., Any]:
        proxy = self._proxy

        async def handle(request: bytes, context: Any) -> bytes:
            pod = proxy.pod_of(method, request)
            rule = proxy.rule_for(method.name, pod)
            code, response = "Canceled", b""
            try:
                if rule is not None and not rule.after:
                    await _suffer(rule)
                if proxy.is_hidden(method, request):
                    raise _RefusedError("NotFound", "hidden: not found")
                sent = proxy.upstream(path)(request, timeout=context.time_remaining())
                if proxy.on_forward is not None:
                    proxy.on_forward(method.name, request, sent)
                response = bytes(await sent)  # a caller that goes away cancels this, and so the runtime's call
                proxy.learn(method, pod, response)
                if rule is not None and rule.after:
                    await _suffer(rule)
                code = "OK"
                return proxy.retouch(method, request, response)
            except _RefusedError as refused:
                code = refused.code
                await context.abort(_BY_NAME[refused.code.lower()], refused.text)
            except grpc.aio.AioRpcError as error:
                code = spelling(error.code())
                await context.abort(error.code(), error.details() or "")
            finally:
                proxy.note(method, pod, request, code, response)
            raise AssertionError("unreachable")

        return handle


class _RefusedError(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


async def _suffer(rule: Rule) -> None:
    rule.reached.set()
    if rule.hangs:
        await rule.release.wait()
    await asyncio.sleep(rule.seconds)
    if rule.code:
        raise _RefusedError(rule.code, rule.text)


def spelling(code: grpc.StatusCode) -> str:
    """Of a gRPC code, as the kubelet and Go's gRPC write it."""
    name = "".join(word.capitalize() for word in code.name.split("_"))
    return {"Cancelled": "Canceled", "Ok": "OK"}.get(name, name)


def _decoded(kind: Any, message: bytes) -> Any:
    return GetMessageClass(kind).FromString(message)


def _as_dict(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return fields


def of_pod(calls: Iterable[Recorded], pod: str) -> list[Recorded]:
    """The calls about this pod."""
    return [call for call in calls if call.pod == pod]
