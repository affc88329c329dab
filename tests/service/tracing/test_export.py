"""Spans on their way to a collector over real gRPC, with OpenTelemetry's own messages."""

import asyncio
from collections.abc import Callable

import pytest

from shared.metrics.registry import Registry
from shared.tracing import otlp
from shared.tracing.context import SpanContext
from shared.tracing.otlp import MAX_WAITING_SPANS, OtlpExporter
from shared.tracing.span import Attributes, Kind
from shared.tracing.tracer import Tracer
from tests.fakes.trace_collector import TraceCollector
from tests.support.agents.free_ports import free_ports
from tests.support.waits.deadline import WAIT_SECONDS

ALL = 1_000_000
RESOURCE: Attributes = {"service.name": "kubelet", "process.executable.name": "podsync", "process.pid": 4711}


def exporting(endpoint: str) -> tuple[Tracer, OtlpExporter, Registry]:
    metrics = Registry("podsync")
    exporter = OtlpExporter(endpoint, RESOURCE, metrics, "podsync")
    return Tracer(exporter.take, ALL), exporter, metrics


def counted(metrics: Registry, result: str) -> float:
    series = next(dict(found) for family, found in metrics.collect() if family.name == otlp.SPANS.name)
    return series.get(("podsync", result), [0.0])[0]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_collector_receives_the_spans_as_they_were() -> None:
    async with TraceCollector() as collector:
        tracer, exporter, metrics = exporting(collector.endpoint)
        running = asyncio.create_task(exporter.run())
        link = SpanContext("ab" * 16, "cd" * 8)
        with tracer.span("GET", Kind.SERVER, link=link, attributes={"text": "\ud800", "number": 5, "flag": True}):
            pass
        with pytest.raises(ValueError), tracer.span("fails", pod="uid"):
            raise ValueError
        await until(lambda: len(collector.received) == 2)
        served, failed = collector.received
        assert served.resource == RESOURCE
        assert (served.span.name, served.span.kind) == ("GET", served.span.SPAN_KIND_SERVER)
        assert served.attributes == {"text": "?", "number": 5, "flag": True}
        assert [(linked.trace_id, linked.span_id) for linked in served.span.links] == [(b"\xab" * 16, b"\xcd" * 8)]
        assert 0 < served.span.start_time_unix_nano <= served.span.end_time_unix_nano
        assert served.span.parent_span_id == b""
        assert (failed.span.status.code, failed.span.status.message) == (2, "ValueError")
        assert failed.attributes == {"k8s.pod.uid": "uid"}
        await until(lambda: counted(metrics, "exported") == 2)
        running.cancel()
        with tracer.span("last"):
            pass
        await exporter.close()
        assert next(collector.named("last"))


async def test_spans_wait_for_a_collector_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "PERIOD_SECONDS", 0.01)
    [port] = free_ports(1)
    tracer, exporter, _ = exporting(f"127.0.0.1:{port}")
    with tracer.span("early"):
        pass
    running = asyncio.create_task(exporter.run())
    await asyncio.sleep(0.1)  # at least one attempt
    async with TraceCollector(port) as collector:
        await until(lambda: list(collector.named("early")))
        running.cancel()
        await exporter.close()


async def test_what_waits_is_bounded_and_what_is_dropped_is_counted() -> None:
    [port] = free_ports(1)
    tracer, exporter, metrics = exporting(f"127.0.0.1:{port}")
    for _ in range(MAX_WAITING_SPANS + 7):
        with tracer.span("waits"):
            pass
    assert counted(metrics, "dropped") == 7
    assert await exporter._export_all(5.0) is not None
    assert len(exporter._waiting) == MAX_WAITING_SPANS
    await exporter.close()
