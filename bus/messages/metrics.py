"""The metrics of one process, which every service answers for itself; server gathers them."""

from msgspec import Struct

from shared.metrics.family import Kind


class GetMetrics(Struct, frozen=True, kw_only=True):
    """Request to every service: its own metrics of one path, such as `/metrics`."""

    path: str  # of the HTTP endpoint that shows them: `/metrics` or `/metrics/probes`


class MetricFamily(Struct, frozen=True, kw_only=True):
    """One metric family of one process. `series`: label values, in the order of `labels`, and values: one for a counter
    or a gauge; of a histogram one count for each bucket and +Inf, then the sum. A value of None is +Inf."""

    name: str  # of the metric
    kind: Kind  # `counter`, `gauge` or `histogram`
    help: str  # one line
    labels: tuple[str, ...] = ()  # names of the labels
    buckets: tuple[float, ...] = ()  # of a histogram: upper bounds, without +Inf
    # one value; of a histogram one count for each bucket and +Inf, then the sum; None is +Inf
    series: tuple[tuple[tuple[str, ...], tuple[float | None, ...]], ...] = ()


class Metrics(Struct, frozen=True, kw_only=True):
    """Answer to GetMetrics. Counters and histograms count from the start of this incarnation."""

    incarnation: str  # of the process; its counters count from the start of this incarnation
    families: tuple[MetricFamily, ...]  # each family that the process declares for this path
