"""To which trace a span belongs: the one under way, that of its pod, that of a client, or a new one."""

import asyncio

import pytest

from shared.tracing.context import SpanContext, parse_traceparent
from shared.tracing.span import MAX_TEXT_CHARACTERS, Kind, Span
from shared.tracing.tracer import MAX_PODS, Tracer

ALL = 1_000_000
CLIENT = SpanContext("ab" * 16, "cd" * 8)


def traced(rate: int = ALL) -> tuple[Tracer, list[Span]]:
    spans: list[Span] = []
    return Tracer(spans.append, rate), spans


def test_without_a_sink_nothing_is_traced() -> None:
    tracer = Tracer()
    tracer.adopt("uid", CLIENT.traceparent)
    with tracer.pod_changed("uid", "pod added") as outer, tracer.span("call", pod="uid") as inner:
        inner.set("key", "value")
        inner.fail("error")
        assert outer.context is None
        assert tracer.traceparent("uid") == ""
    assert not tracer.enabled


def test_a_span_within_another_is_its_child() -> None:
    tracer, (spans) = traced()
    with tracer.span("outer") as outer, tracer.span("inner", Kind.CLIENT):
        pass
    inner, root = spans
    assert (inner.name, inner.kind, root.parent) == ("inner", Kind.CLIENT, "")
    assert outer.context is not None
    assert (inner.context.trace_id, inner.parent) == (outer.context.trace_id, outer.context.span_id)
    assert root.began <= inner.began <= inner.ended <= root.ended


def test_the_work_on_a_pod_belongs_to_the_trace_of_its_last_change() -> None:
    tracer, spans = traced()
    with tracer.pod_changed("uid", "pod added"):
        pass
    with tracer.span("sync", pod="uid"):
        header = tracer.traceparent("uid")
    first = spans[0].context
    assert [span.context.trace_id for span in spans] == [first.trace_id] * 2
    assert spans[1].parent == first.span_id
    assert header == spans[1].context.traceparent
    with tracer.pod_changed("uid", "pod changed"):
        pass
    assert spans[2].context.trace_id != first.trace_id
    with tracer.span("sync", pod="another"):
        pass
    assert spans[3].context.trace_id not in {span.context.trace_id for span in spans[:3]}


def test_another_process_continues_the_trace_of_a_pod() -> None:
    tracer, spans = traced(rate=0)
    tracer.adopt("uid", CLIENT.traceparent)
    with tracer.span("mount", pod="uid"):
        pass
    with tracer.within("uid"), tracer.span("patch"):
        pass
    assert [(span.context.trace_id, span.parent) for span in spans] == [(CLIENT.trace_id, CLIENT.span_id)] * 2
    tracer.adopt("uid", "")
    assert tracer.traceparent("uid") == ""


def test_a_trace_that_is_not_sampled_leaves_nothing_behind() -> None:
    tracer, spans = traced(rate=0)
    with tracer.pod_changed("uid", "pod added"), tracer.span("call"):
        pass
    assert not spans
    assert tracer.traceparent("uid") == ""


def test_the_clients_decision_is_passed_on() -> None:
    tracer, spans = traced()
    with tracer.span("GET", Kind.SERVER, parent=SpanContext("ab" * 16, "cd" * 8, sampled=False)):
        header = tracer.traceparent()
    assert not spans
    passed_on = parse_traceparent(header)
    assert passed_on is not None
    assert (passed_on.trace_id, passed_on.sampled) == ("ab" * 16, False)


def test_a_link_begins_a_trace_of_its_own() -> None:
    tracer, [*_] = traced()
    with tracer.span("outer"), tracer.span("GET", link=CLIENT) as linked:
        assert linked.context is not None
        assert linked.context.trace_id != CLIENT.trace_id


def test_a_child_needs_a_trace() -> None:
    tracer, spans = traced()
    with tracer.child("request", Kind.CLIENT):
        pass
    assert not spans
    with tracer.child("request", Kind.SERVER, parent=CLIENT):
        pass
    assert spans[0].parent == CLIENT.span_id


def test_an_exception_is_the_error_of_the_span() -> None:
    tracer, spans = traced()
    with pytest.raises(ValueError), tracer.span("fails"):
        raise ValueError("not shown: it may hold anything")
    with pytest.raises(ValueError), tracer.span("fails") as span:
        span.fail("NotFound" * 100)
        raise ValueError
    assert [span.error for span in spans] == ["ValueError", ("NotFound" * 100)[:MAX_TEXT_CHARACTERS]]


async def test_a_task_that_outlives_the_span_is_not_part_of_it() -> None:
    tracer, spans = traced()
    proceed = asyncio.Event()

    async def later() -> None:
        await proceed.wait()
        with tracer.span("later"):
            pass

    with tracer.span("outer"):
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
    proceed.set()
    await task
    outer, afterwards = spans
    assert afterwards.parent == ""
    assert afterwards.context.trace_id != outer.context.trace_id


def test_the_traces_of_pods_are_bounded() -> None:
    tracer, _ = traced()
    for number in range(MAX_PODS + 10):
        tracer.adopt(f"uid-{number}", CLIENT.traceparent)
    assert tracer.traceparent("uid-9") == ""
    assert tracer.traceparent("uid-10") != ""
