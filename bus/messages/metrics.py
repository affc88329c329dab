"""The metrics of one process, which every service answers for itself; server gathers them."""

from dataclasses import dataclass

from shared.metrics.family import Kind


@dataclass(frozen=True, kw_only=True)
class GetMetrics:
    """Request to every service: its own metrics of one path, such as `/metrics`."""

    path: str


@dataclass(frozen=True, kw_only=True)
class MetricFamily:
    """One metric family of one process. `series`: label values, in the order of `labels`, and values: one for a counter
    or a gauge; of a histogram one count for each bucket and +Inf, then the sum. A value of None is +Inf."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    series: tuple[tuple[tuple[str, ...], tuple[float | None, ...]], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Answer to GetMetrics. Counters and histograms count from the start of this incarnation."""

    incarnation: str
    families: tuple[MetricFamily, ...]
