"""A container runtime that has lists alone, each as one answer and, where it is said so, as a stream.

The messages of the streams are made by protobuf of what CRI for Kubernetes 1.37 says: the request has the filter of the
list as field 1, a part has `repeated` entries as field 1.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from cri_api.v1 import api_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

RUNTIME, IMAGE = "runtime.v1.RuntimeService", "runtime.v1.ImageService"
STREAMS = {  # stream -> service, list, entry, filter
    "StreamContainers": (RUNTIME, "ListContainers", "Container", "ContainerFilter"),
    "StreamPodSandboxes": (RUNTIME, "ListPodSandbox", "PodSandbox", "PodSandboxFilter"),
    "StreamContainerStats": (RUNTIME, "ListContainerStats", "ContainerStats", "ContainerStatsFilter"),
    "StreamPodSandboxStats": (RUNTIME, "ListPodSandboxStats", "PodSandboxStats", "PodSandboxStatsFilter"),
    "StreamPodSandboxMetrics": (RUNTIME, "ListPodSandboxMetrics", "PodSandboxMetrics", ""),
    "StreamImages": (IMAGE, "ListImages", "Image", "ImageFilter"),
}
_OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0))


def _streamed_messages() -> dict[str, Any]:
    """Return the classes of the requests and parts, by name."""
    pool = descriptor_pool.DescriptorPool()
    cri = descriptor_pb2.FileDescriptorProto.FromString(api_pb2.DESCRIPTOR.serialized_pb)
    for needed in api_pb2.DESCRIPTOR.dependencies:
        pool.AddSerializedFile(needed.serialized_pb)
    pool.Add(cri)
    file = descriptor_pb2.FileDescriptorProto(name="streams.proto", package="streams", syntax="proto3")
    file.dependency.append(cri.name)
    for name, (_, _, entry, selected) in STREAMS.items():
        request = file.message_type.add(name=f"{name}Request")
        if selected:
            _add(request, "filter", selected, FieldDescriptor.LABEL_OPTIONAL)
        _add(file.message_type.add(name=f"{name}Response"), "entries", entry, FieldDescriptor.LABEL_REPEATED)
    pool.Add(file)
    names = [f"{name}{kind}" for name in STREAMS for kind in ("Request", "Response")]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"streams.{name}")) for name in names}


def _add(message: Any, name: str, kind: str, label: int) -> None:
    message.field.add(
        name=name, number=1, type=FieldDescriptor.TYPE_MESSAGE, type_name=f".runtime.v1.{kind}", label=label
    )


_MESSAGES = _streamed_messages()


class ListServer:
    """`async with ListServer(socket) as runtime:`. `entries`: what each list has. `streams`: those it has; `batch`:
    entries of a part; `fails_after`: parts after which a stream ends with Unavailable; `hangs`: it sends no part."""

    def __init__(self, socket: Path, *streams: str, batch: int = 1) -> None:
        self.endpoint = f"unix://{socket}"
        self.streams, self.batch = set(streams), batch
        self.entries: dict[str, list[Any]] = {}  # list -> entries
        self.asked: Counter[str] = Counter()
        self.fails_after: int | None = None
        self.hangs = False
        self._server: Any = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen."""
        self._server = grpc.aio.server(options=_OPTIONS)
        for service in (RUNTIME, IMAGE):
            lists = {row[1]: self._unary(row[1]) for row in STREAMS.values() if row[0] == service}
            streams = {name: self._stream(name) for name, row in STREAMS.items() if row[0] == service}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, lists | streams),))
        self._server.add_insecure_port(self.endpoint)
        await self._server.start()

    async def stop(self) -> None:
        """End, with all connections."""
        await self._server.stop(None)

    def _unary(self, method: str) -> Any:
        answer = getattr(api_pb2, f"{method}Response")

        async def handle(request: Any, context: Any) -> Any:
            self.asked[method] += 1
            return answer(**{answer.DESCRIPTOR.fields[0].name: self.entries.get(method, [])})

        request = getattr(api_pb2, f"{method}Request")
        return grpc.unary_unary_rpc_method_handler(handle, request.FromString, answer.SerializeToString)

    def _stream(self, name: str) -> Any:
        part = _MESSAGES[f"{name}Response"]

        async def handle(request: Any, context: Any) -> AsyncIterator[Any]:
            self.asked[name] += 1
            if name not in self.streams:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")
            if self.hangs:
                await asyncio.Event().wait()
            entries = [entry.SerializeToString() for entry in self.entries.get(STREAMS[name][1], [])]
            for sent, begin in enumerate(range(0, len(entries), self.batch)):
                if sent == self.fails_after:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the store is closed")
                message = part()
                for entry in entries[begin : begin + self.batch]:
                    message.entries.add().MergeFromString(entry)
                yield message

        request = _MESSAGES[f"{name}Request"]
        return grpc.unary_stream_rpc_method_handler(handle, request.FromString, part.SerializeToString)
