"""PURE. The identity of a span as it travels between processes: W3C trace context, version 00 (server.md 18)."""

import re

from msgspec import Struct

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED = 0x01
_MILLION = 1_000_000
MAX_HEADER_CHARACTERS = 200  # of a header that are read


class SpanContext(Struct, frozen=True):
    """`trace_id`: 32 hexadecimal digits, `span_id`: 16; neither is all zeros. A span that is not sampled is not
    exported, and neither are its children."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """Return the value of the header."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def parse_traceparent(text: str) -> SpanContext | None:
    """Return the context in a header, None where it has none: a header that is malformed counts as absent."""
    matched = _TRACEPARENT.fullmatch(text) if len(text) <= MAX_HEADER_CHARACTERS else None
    if matched is None:
        return None
    version, trace_id, span_id, flags, rest = matched.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return SpanContext(trace_id, span_id, sampled=bool(int(flags, 16) & _SAMPLED))


def is_sampled(trace_id: str, rate_per_million: int) -> bool:
    """Return whether a trace that begins here is sampled. The last 8 bytes of the id decide, as in OpenTelemetry's
    TraceIDRatioBased: processes with the same rate agree."""
    return (int(trace_id[16:], 16) >> 1) < rate_per_million * (1 << 63) // _MILLION
