"""A collector of OpenTelemetry traces: a gRPC server with the service of OTLP, which keeps what it receives."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc.aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True)
class Received:
    """A span and the attributes of the process that sent it."""

    span: Span
    resource: dict[str, Any]

    @property
    def process(self) -> str:
        """The service of ours."""
        return str(self.resource["process.executable.name"])

    @property
    def trace(self) -> str:
        """The id of its trace, in hexadecimal digits."""
        return self.span.trace_id.hex()

    @property
    def attributes(self) -> dict[str, Any]:
        """Attribute -> value."""
        return _values(self.span.attributes)


class TraceCollector:
    """`async with TraceCollector() as collector:` listens on `endpoint`; `port` 0 = any."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self.received: list[Received] = []
        self._server: Any = None
        self.endpoint = ""

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        self.endpoint = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop(None)

    async def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802  the name of the method in OTLP
        """Take the spans of one request."""
        for of_process in request.resource_spans:
            resource = _values(of_process.resource.attributes)
            self.received += [Received(span, resource) for scope in of_process.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def traces(self) -> dict[str, list[Received]]:
        """The spans by the id of their trace."""
        found: dict[str, list[Received]] = {}
        for received in self.received:
            found.setdefault(received.trace, []).append(received)
        return found

    def named(self, name: str) -> Iterator[Received]:
        """The spans with this name."""
        return (received for received in self.received if received.span.name == name)


def _values(attributes: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in attributes}
