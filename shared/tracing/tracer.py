"""Begins and ends the spans of one process, and keeps to which trace the work on a pod belongs.

A span is a child of the span under way in the same task, or of the trace of the pod it works on; without either it
begins a trace, of which the configured share is sampled (server.md 18). A tracer without a sink does nothing.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

from shared.tracing.context import SpanContext, is_sampled, parse_traceparent
from shared.tracing.span import Attributes, Kind, Span, Value

MAX_PODS = 1024  # whose traces are kept; the one that was used longest ago is forgotten first

_current: ContextVar["Scope | None"] = ContextVar("current span", default=None)


class Tracer:
    """`sink` takes each ended span; None = nothing is traced. `rate_per_million`: of the traces that begin here."""

    def __init__(self, sink: Callable[[Span], None] | None = None, rate_per_million: int = 0) -> None:
        self._sink, self._rate = sink, rate_per_million
        self._pods: OrderedDict[str, SpanContext] = OrderedDict()

    @property
    def enabled(self) -> bool:
        """Whether anything is traced."""
        return self._sink is not None

    def span(
        self,
        name: str,
        kind: Kind = Kind.INTERNAL,
        *,
        pod: str = "",
        parent: SpanContext | None = None,
        link: SpanContext | None = None,
        attributes: Attributes | None = None,
    ) -> "Scope":
        """Return a block that is one span. An exception that leaves it is the span's error.

        `pod`: the UID of the pod that the work is for; its trace precedes the span under way. `parent` precedes both.
        With `link` a trace begins here, which names the other one.
        """
        if self._sink is None:
            return _NOTHING
        return self._scope(name, kind, pod, parent or (None if link else self._parent(pod)), link, attributes or {})

    def child(self, name: str, kind: Kind, parent: SpanContext | None = None) -> "Scope":
        """Return a block that is a span if it belongs to a trace: to `parent`, or to the span under way."""
        if self._sink is None or (parent := parent or self._parent("")) is None:
            return _NOTHING
        return self._scope(name, kind, "", parent, None, {})

    def pod_changed(self, uid: str, what: str) -> "Scope":
        """Return a block that begins the trace of a pod's change; the work on the pod in this and the other processes
        belongs to it, until the next change."""
        if self._sink is None:
            return _NOTHING
        self._pods.pop(uid, None)
        scope = self._scope(what, Kind.INTERNAL, uid, None, None, {})
        if scope.context is not None and scope.context.sampled:
            self._keep(uid, scope.context)
        return scope

    def adopt(self, uid: str, traceparent: str) -> None:
        """Note that another process published a change of the pod; traceparent "" = it belongs to no trace."""
        if self._sink is None:
            return
        context = parse_traceparent(traceparent)
        if context is None:
            self._pods.pop(uid, None)
        else:
            self._keep(uid, context)

    def within(self, pod: str = "", parent: SpanContext | None = None) -> "Scope":
        """Return a block whose spans belong to the trace of the pod, or to `parent`, without a span of its own."""
        context = parent or self._pods.get(pod)
        if self._sink is None or context is None:
            return _NOTHING
        return Scope(Span("", Kind.INTERNAL, context, "", 0), None)

    def traceparent(self, pod: str = "") -> str:
        """Return the header for a message sent now, about the pod if it is one with a trace; "" = none."""
        if self._sink is None:
            return ""
        parent = self._parent(pod)
        return parent.traceparent if parent is not None else ""

    def _scope(
        self,
        name: str,
        kind: Kind,
        pod: str,
        parent: SpanContext | None,
        link: SpanContext | None,
        attributes: Attributes,
    ) -> "Scope":
        trace_id = parent.trace_id if parent else secrets.token_hex(16)
        sampled = parent.sampled if parent else is_sampled(trace_id, self._rate)
        context = SpanContext(trace_id, secrets.token_hex(8), sampled)
        span = Span(name, kind, context, parent.span_id if parent else "", time.time_ns(), link=link)
        for key, value in attributes.items():
            span.set(key, value)
        if pod:
            span.set("k8s.pod.uid", pod)
        return Scope(span, self._sink)

    def _parent(self, pod: str) -> SpanContext | None:
        scope = _current.get()
        current = scope.context if scope is not None and scope.under_way else None
        trace = self._pods.get(pod) if pod else None
        if trace is None or (current is not None and current.trace_id == trace.trace_id):
            return current
        return trace

    def _keep(self, uid: str, context: SpanContext) -> None:
        self._pods[uid] = context
        self._pods.move_to_end(uid)
        while len(self._pods) > MAX_PODS:
            self._pods.popitem(last=False)


class Scope:
    """`with` block of one span. A task that the block starts and that outlives it does not count as part of it."""

    def __init__(self, span: Span | None, sink: Callable[[Span], None] | None) -> None:
        self._span, self._sink = span, sink
        self._token: Token[Scope | None] | None = None
        self.under_way = False

    @property
    def context(self) -> SpanContext | None:
        """Return the identity of the span, None where nothing is traced."""
        return self._span.context if self._span is not None else None

    def set(self, key: str, value: Value) -> None:
        """Give the span an attribute."""
        if self._span is not None:
            self._span.set(key, value)

    def fail(self, error: str) -> None:
        """Mark the work as failed."""
        if self._span is not None:
            self._span.fail(error)

    def __enter__(self) -> Self:
        if self._span is not None:
            self.under_way = True
            self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is None or self._token is None:
            return
        self.under_way = False
        _reset(self._token)
        if self._sink is None:
            return
        if error is not None and not self._span.error:
            self._span.fail("cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__)
        self._span.ended = max(time.time_ns(), self._span.began)
        if self._span.context.sampled:
            self._sink(self._span)


def _reset(token: "Token[Scope | None]") -> None:
    try:
        _current.reset(token)
    except ValueError:  # a generator that another task closes: that task has its own current span
        pass


_NOTHING = Scope(None, None)
