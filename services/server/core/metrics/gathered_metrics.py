"""Combines the metrics of all processes into those of one kubelet: sums by series, with counters that continue across
restarts.

A restarted process counts from 0 again, and Prometheus would take the smaller sum for a restart of everything. So what
the earlier process counted is kept and added, also over a restart of server, which saves it. Of a process that did not
answer, counters and histograms keep their last values and gauges are left out.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bus.messages.metrics import MetricFamily, Metrics
from shared.metrics.family import Kind

Labels = tuple[str, ...]
Values = tuple[float | None, ...]
Series = dict[Labels, Values]

MAX_KEPT_SERIES = 500  # of one family of processes that have ended
_STARTED = "bulkhead_process_start_time_seconds"

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
    (
        "process_start_time_seconds",
        "bulkhead_process_start_time_seconds",
        min,
        "Start of the first process that was counted.",
    ),
    ("process_open_fds", "bulkhead_process_open_fds", sum, "Open file descriptors of all processes."),
    ("process_max_fds", "bulkhead_process_max_fds", sum, "File descriptors that all processes may open."),
)


class ProcessCounters(Struct, frozen=True, kw_only=True):
    """The counters and histograms of one process: the newest ones, of `incarnation`, and what earlier ones counted."""

    incarnation: str
    newest: tuple[MetricFamily, ...]
    ended: tuple[MetricFamily, ...] = ()


class Counters(Struct, frozen=True, kw_only=True):
    """What a restarted server needs, so that no sum falls. `since`: the start of the first process that was counted, in
    seconds since the epoch, None where it is not known."""

    since: float | None
    processes: dict[str, ProcessCounters]


class GatheredMetrics:
    """The newest answer of each process. `keeps_ended`: counters go on across restarts of a process. `since` is as in
    `Counters`."""

    def __init__(self, *, keeps_ended: bool) -> None:
        self.since: float | None = None
        self._keeps_ended = keeps_ended
        self._newest: dict[str, Metrics] = {}
        self._missing: set[str] = set()
        self._ended: dict[str, dict[str, MetricFamily]] = {}  # process -> name -> what earlier processes counted

    def take(self, process: str, metrics: Metrics) -> None:
        """Take the answer of this process."""
        self._missing.discard(process)
        before = self._newest.get(process)
        if self._keeps_ended and before is not None and before.incarnation != metrics.incarnation:
            ended = self._ended.setdefault(process, {})
            for family in _counters(before.families):
                ended[family.name] = _bounded(_sum(family, ended.get(family.name)))
        self._newest[process] = metrics
        starts = [values[0] for family in metrics.families if family.name == _STARTED for _, values in family.series]
        self.since = min((start for start in (self.since, *starts) if start is not None), default=None)

    def miss(self, process: str) -> None:
        """Note that this process did not answer in time."""
        self._missing.add(process)

    def counters(self) -> Counters:
        """Return the counters for `restore`."""
        return Counters(
            since=self.since,
            processes={
                process: ProcessCounters(
                    incarnation=metrics.incarnation,
                    newest=_counters(metrics.families),
                    ended=tuple(self._ended.get(process, {}).values()),
                )
                for process, metrics in self._newest.items()
            },
        )

    def restore(self, counters: Counters) -> None:
        """Continue with the counters of an earlier server. Call it before the first answer."""
        self.since = counters.since
        for process, counted in counters.processes.items():
            self._newest[process] = Metrics(incarnation=counted.incarnation, families=counted.newest)
            self._ended[process] = {family.name: family for family in counted.ended}

    def families(self) -> list[MetricFamily]:
        """Return the families by name, each with the series of all processes."""
        merged: dict[str, MetricFamily] = {}
        for process, metrics in self._newest.items():
            shown = {
                family.name: family
                for family in metrics.families
                if family.kind is not Kind.GAUGE or process not in self._missing
            }
            for name, ended in self._ended.get(process, {}).items():  # also of what the newest process never counted
                shown[name] = _sum(shown[name], ended) if name in shown else ended
            for name, family in shown.items():
                merged[name] = _sum(family, merged.get(name))
        return [merged[name] for name in sorted(merged)]


def with_sums(families: Iterable[MetricFamily], since: float | None = None) -> list[MetricFamily]:
    """Return the families, and the kubelet's `process_*`, which are computed from those of the processes. Counters that
    began before the oldest process that answered, at `since`, have that start."""
    by_name = {family.name: family for family in families}
    for name, source, make, help_text in OF_THE_AGENT:
        values = [values[0] for _, values in by_name[source].series] if source in by_name else []
        if values and source == _STARTED:
            values.append(since)
        if values:
            made = make(value for value in values if value is not None)
            kind = by_name[source].kind
            by_name[name] = MetricFamily(name=name, kind=kind, help=help_text, series=(((), (made,)),))
    return [by_name[name] for name in sorted(by_name)]


def _counters(families: Iterable[MetricFamily]) -> tuple[MetricFamily, ...]:
    return tuple(family for family in families if family.kind is not Kind.GAUGE)


def _sum(one: MetricFamily, other: MetricFamily | None) -> MetricFamily:
    """Add the series of `other`, except those with another declaration, which a process of another version may have."""
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
    return _with(family, dict(family.series[:MAX_KEPT_SERIES]))


def _with(family: MetricFamily, series: Mapping[Labels, Values]) -> MetricFamily:
    return MetricFamily(
        name=family.name,
        kind=family.kind,
        help=family.help,
        labels=family.labels,
        buckets=family.buckets,
        series=tuple(series.items()),
    )
