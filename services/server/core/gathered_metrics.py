"""The metrics of all processes as those of one kubelet: sums by series, and counters that go on across restarts.

A restarted process counts from 0 again, and Prometheus would take the smaller sum for a restart of everything. So what
the earlier process counted is kept and added, as long as server itself runs. Of a process that did not answer, counters
and histograms keep their last values and gauges are left out.
"""

from collections.abc import Iterable, Mapping

from bus.messages.metrics import MetricFamily, Metrics
from shared.metrics.family import Kind

Labels = tuple[str, ...]
Values = tuple[float | None, ...]
Series = dict[Labels, Values]

KEPT_SERIES = 500  # of one family of processes that have ended

# The kubelet's name of a sum, least or largest value of ours, how it is made, and its help.
OF_THE_AGENT = (
    ("process_cpu_seconds_total", "bulkhead_process_cpu_seconds_total", sum, "CPU time of all processes."),
    (
        "process_resident_memory_bytes",
        "bulkhead_process_proportional_memory_bytes",
        sum,
        "Memory of all processes; shared pages count once.",
    ),
    ("process_virtual_memory_bytes", "bulkhead_process_virtual_memory_bytes", sum, "Address space of all processes."),
    ("process_start_time_seconds", "bulkhead_process_start_time_seconds", min, "Start of the oldest process."),
    ("process_open_fds", "bulkhead_process_open_fds", sum, "Open file descriptors of all processes."),
    ("process_max_fds", "bulkhead_process_max_fds", sum, "File descriptors that all processes may open."),
)


class GatheredMetrics:
    """The newest answer of each process. `keeps_ended`: counters go on across restarts of a process."""

    def __init__(self, *, keeps_ended: bool) -> None:
        self._keeps_ended = keeps_ended
        self._newest: dict[str, Metrics] = {}
        self._missing: set[str] = set()
        self._ended: dict[str, dict[str, MetricFamily]] = {}  # process -> name -> what earlier processes counted

    def take(self, process: str, metrics: Metrics) -> None:
        """This process answered."""
        self._missing.discard(process)
        before = self._newest.get(process)
        if self._keeps_ended and before is not None and before.incarnation != metrics.incarnation:
            ended = self._ended.setdefault(process, {})
            for family in before.families:
                if family.kind is not Kind.GAUGE:
                    ended[family.name] = _bounded(_sum(family, ended.get(family.name)))
        self._newest[process] = metrics

    def miss(self, process: str) -> None:
        """This process did not answer in time."""
        self._missing.add(process)

    def families(self) -> list[MetricFamily]:
        """Return the families by name, each with the series of all processes."""
        merged: dict[str, MetricFamily] = {}
        for process, metrics in self._newest.items():
            ended = self._ended.get(process, {})
            for family in metrics.families:
                if family.kind is not Kind.GAUGE or process not in self._missing:
                    counted = _sum(family, ended.get(family.name))
                    merged[family.name] = _sum(counted, merged.get(family.name))
        return [merged[name] for name in sorted(merged)]


def with_sums(families: Iterable[MetricFamily]) -> list[MetricFamily]:
    """Return the families and the kubelet's `process_*`, which are made of those of the processes."""
    by_name = {family.name: family for family in families}
    for name, source, make, help_text in OF_THE_AGENT:
        values = [values[0] for _, values in by_name[source].series] if source in by_name else []
        if values:
            made = make(value for value in values if value is not None)
            kind = by_name[source].kind
            by_name[name] = MetricFamily(name=name, kind=kind, help=help_text, series=(((), (made,)),))
    return [by_name[name] for name in sorted(by_name)]


def _sum(one: MetricFamily, other: MetricFamily | None) -> MetricFamily:
    """Add the series of `other`; those of another declaration, which a process of another version has, are left out."""
    if other is None or (one.kind, one.labels, one.buckets) != (other.kind, other.labels, other.buckets):
        return one
    series: Series = dict(other.series)
    for labels, values in one.series:
        known = series.get(labels)
        series[labels] = values if known is None else tuple(map(_plus, known, values))
    return _with(one, series)


def _plus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _bounded(family: MetricFamily) -> MetricFamily:
    return _with(family, dict(family.series[:KEPT_SERIES]))


def _with(family: MetricFamily, series: Mapping[Labels, Values]) -> MetricFamily:
    return MetricFamily(
        name=family.name,
        kind=family.kind,
        help=family.help,
        labels=family.labels,
        buckets=family.buckets,
        series=tuple(series.items()),
    )
