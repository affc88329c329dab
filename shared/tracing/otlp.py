"""Exports spans over OTLP (gRPC, plain text) to a collector: bounded in memory and time, and never in anyone's way.

Imports the messages of OpenTelemetry; import this module only where the configuration has `tracing`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

import grpc
import grpc.aio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from shared.metrics.family import counter
from shared.metrics.registry import Registry
from shared.plugin_grpc.grpc_codes import code_name
from shared.time.backoff import Backoff
from shared.tracing.span import Attributes, Span, Value

log = logging.getLogger(__name__)

MAX_WAITING_SPANS = 2048  # while the collector does not answer, later ones are dropped
MAX_BATCH_SPANS = 128  # in a request
PERIOD_SECONDS = 1.0  # between two exports
TIMEOUT_SECONDS = 10.0  # of one
MAX_CLOSE_SECONDS = 1.0  # at the end of the process
_AGAIN = Backoff(initial=1.0, cap=30.0)
SPANS = counter("bulkhead_trace_spans_total", "Spans by what became of them: exported or dropped.", "process", "result")


class OtlpExporter:
    """`take` is the sink of a Tracer; `run` exports until cancelled; `close` exports what is left."""

    def __init__(self, endpoint: str, resource: Attributes, metrics: Registry, process: str) -> None:
        self._endpoint, self._process = endpoint, process
        self._resource = Resource(attributes=_attributes(resource))
        self._spans = metrics.counter(SPANS)
        self._waiting: deque[Span] = deque()
        self._channel: grpc.aio.Channel | None = None

    def take(self, span: Span) -> None:
        """Take an ended span."""
        if len(self._waiting) >= MAX_WAITING_SPANS:
            self._spans.inc(self._process, "dropped")
        else:
            self._waiting.append(span)

    async def run(self) -> None:
        """Export once a second what has ended; after a failure later."""
        failures = 0
        while True:
            await asyncio.sleep(_AGAIN.delay(failures) or PERIOD_SECONDS)
            error = await self._export_all(TIMEOUT_SECONDS)
            if error and not failures:
                log.warning("%s: spans are not exported: %s (start the collector, or remove tracing)", *error)
            elif failures and not error:
                log.info("spans are exported again")
            failures = failures + 1 if error else 0

    async def close(self) -> None:
        """Export what is left, for a bounded time, and close the connection."""
        await self._export_all(MAX_CLOSE_SECONDS)
        if self._channel is not None:
            await self._channel.close(None)

    async def _export_all(self, timeout: float) -> tuple[str, str] | None:
        """Return where and why it failed. The spans of a failed request are sent again with the next."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH_SPANS, len(self._waiting)))]
            try:
                await self._export(batch, timeout)
            except grpc.aio.AioRpcError as error:
                self._put_back(batch)
                return self._endpoint, f"{code_name(error.code())}: {error.details()}"
            except BaseException:
                self._put_back(batch)
                raise
            self._spans.inc(self._process, "exported", by=len(batch))
        return None

    def _put_back(self, batch: list[Span]) -> None:
        self._waiting.extendleft(reversed(batch))
        while len(self._waiting) > MAX_WAITING_SPANS:
            self._waiting.pop()
            self._spans.inc(self._process, "dropped")

    async def _export(self, batch: Iterable[Span], timeout: float) -> None:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._endpoint, options=(("grpc.enable_http_proxy", 0),))
        scope = trace_pb2.ScopeSpans(scope=InstrumentationScope(name="bulkhead"), spans=map(encoded, batch))
        request = ExportTraceServiceRequest(
            resource_spans=[trace_pb2.ResourceSpans(resource=self._resource, scope_spans=[scope])]
        )
        stub = TraceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        await stub.Export(request, timeout=timeout)


def encoded(span: Span) -> trace_pb2.Span:
    """Return the span as OTLP has it."""
    links = [] if span.link is None else [_link(span.link.trace_id, span.link.span_id)]
    return trace_pb2.Span(
        trace_id=bytes.fromhex(span.context.trace_id),
        span_id=bytes.fromhex(span.context.span_id),
        parent_span_id=bytes.fromhex(span.parent),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.ValueType(int(span.kind)),
        start_time_unix_nano=span.began,
        end_time_unix_nano=span.ended,
        attributes=_attributes(span.attributes),
        links=links,
        status=trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR, message=span.error) if span.error else None,
    )


def _link(trace_id: str, span_id: str) -> trace_pb2.Span.Link:
    return trace_pb2.Span.Link(trace_id=bytes.fromhex(trace_id), span_id=bytes.fromhex(span_id))


def _attributes(values: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any(value)) for key, value in values.items()]


def _any(value: Value) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case str():
            return AnyValue(string_value=value.encode(errors="replace").decode())
