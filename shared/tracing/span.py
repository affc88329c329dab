"""PURE. One measured piece of work. Mutable while it is under way; the tracer hands it on when it has ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from shared.tracing.context import SpanContext

MAX_TEXT_CHARACTERS = 256  # of an attribute or error; the rest is cut
Value = str | int | bool
Attributes = Mapping[str, Value]


class Kind(IntEnum):
    """Who waits for whom, numbered as in OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


@dataclass(slots=True)
class Span:
    """`began` and `ended`: nanoseconds since the epoch, `ended` 0 = under way. `parent`: the id of a span, "" = it is
    the root of its trace. `link`: a span of another trace that caused this one. `error`: "" = it succeeded."""

    name: str
    kind: Kind
    context: SpanContext
    parent: str
    began: int
    ended: int = 0
    link: SpanContext | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str = ""

    def set(self, key: str, value: Value) -> None:
        """Give the span an attribute."""
        self.attributes[key] = value[:MAX_TEXT_CHARACTERS] if isinstance(value, str) else value

    def fail(self, error: str) -> None:
        """Mark the work as failed."""
        self.error = error[:MAX_TEXT_CHARACTERS]
