"""Forms metric families in the Prometheus text format 0.0.4, which every scraper reads."""

from collections.abc import Iterable, Sequence

from bus.messages.metrics import MetricFamily
from shared.metrics.family import Kind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def metrics_text(families: Iterable[MetricFamily]) -> bytes:
    """Return the page of these families. A family without series is left out."""
    lines: list[str] = []
    for family in families:
        if family.series:
            lines.append(f"# HELP {family.name} {help_line(family.help)}\n# TYPE {family.name} {family.kind}\n")
            _append_series(lines, family)
    return "".join(lines).encode("utf-8", "replace")


def _append_series(lines: list[str], family: MetricFamily) -> None:
    name = family.name
    bounds = [*map(number, family.buckets), "+Inf"] if family.kind is Kind.HISTOGRAM else []
    for labels, values in sorted(family.series, key=lambda series: series[0]):
        pairs = label_pairs(family.labels, labels)
        shown = f"{{{pairs}}}" if pairs else ""
        if not bounds:
            lines.append(f"{name}{shown} {number(values[0])}\n")
            continue
        comma, count = "," if pairs else "", 0.0
        for bound, observed in zip(bounds, values, strict=False):
            count += observed or 0.0
            lines.append(f'{name}_bucket{{{pairs}{comma}le="{bound}"}} {number(count)}\n')
        lines.append(f"{name}_sum{shown} {number(values[-1])}\n{name}_count{shown} {number(count)}\n")


def label_pairs(names: Sequence[str], values: Sequence[str]) -> str:
    """Return `a="1",b="2"`, the values escaped."""
    return ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in zip(names, values, strict=True))


def number(value: float | None) -> str:
    """Return the number as the format has it; None = +Inf."""
    if value is None:
        return "+Inf"
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def help_line(text: str) -> str:
    """Return the text of a HELP line, escaped."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")
