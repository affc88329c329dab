"""What pods use as the runtime reports it (CRI ListPodSandboxStats, ListMetricDescriptors, ListPodSandboxMetrics), and
how these messages are read. No I/O, no decisions.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

NANOSECONDS = 1_000_000_000
_KINDS = ("counter", "gauge")  # by CRI number
# Part of the message, its field, and the figure's name here.
_FIGURES = (
    ("cpu", "usage_core_nano_seconds", "cpu_nanoseconds"),
    ("cpu", "usage_nano_cores", "cpu_nanocores"),
    ("memory", "available_bytes", "memory_available"),
    ("memory", "usage_bytes", "memory_usage"),
    ("memory", "working_set_bytes", "memory_working_set"),
    ("memory", "rss_bytes", "memory_rss"),
    ("memory", "page_faults", "page_faults"),
    ("memory", "major_page_faults", "major_page_faults"),
    ("swap", "swap_available_bytes", "swap_available"),
    ("swap", "swap_usage_bytes", "swap_usage"),
)
_PARTS = ("cpu", "memory", "swap", "io")
_SHARE = ("Total", "Avg10", "Avg60", "Avg300")


class ReportedShare(Struct, frozen=True, kw_only=True):
    """One line of PSI: how long tasks waited."""

    total: int  # as the runtime counts it, since the cgroup was created
    avg10: float  # percent of the last 10 s
    avg60: float  # percent of the last 60 s
    avg300: float  # percent of the last 300 s


class ReportedPressure(Struct, frozen=True, kw_only=True):
    """PSI of one resource: `some` = at least one task waited, `full` = all of them."""

    some: ReportedShare
    full: ReportedShare


class ReportedUsage(Struct, frozen=True, kw_only=True):
    """The figures of one container or pod. Sizes are bytes; what the runtime does not report is absent."""

    time: float = 0.0  # wall clock seconds of the newest figure, 0 = there is none
    figures: Mapping[str, int] = field(default_factory=dict)  # by the names of `_FIGURES`
    pressures: Mapping[str, ReportedPressure] = field(default_factory=dict)  # by resource: cpu, memory, io


class ReportedInterface(Struct, frozen=True, kw_only=True):
    """Counters of one network interface of a pod since it was created; 0 where the runtime has none."""

    name: str
    rx_bytes: int = 0
    rx_errors: int = 0
    tx_bytes: int = 0
    tx_errors: int = 0


class SandboxStats(Struct, frozen=True, kw_only=True):
    """One pod sandbox in ListPodSandboxStats."""

    id: str
    usage: ReportedUsage
    containers: Mapping[str, ReportedUsage] = field(default_factory=dict)  # by container id
    network_time: float = 0.0  # wall clock seconds
    interfaces: tuple[ReportedInterface, ...] | None = None  # the default one first; None = it reports no network
    processes: int | None = None  # in all its containers


class MetricDescriptor(Struct, frozen=True, kw_only=True):
    """One metric that the runtime has."""

    name: str
    help: str
    labels: tuple[str, ...]


class RuntimeMetric(Struct, frozen=True, kw_only=True):
    """One sample. `labels` are the values in the order of the descriptor's names."""

    name: str
    kind: str  # counter or gauge
    labels: tuple[str, ...]
    value: int
    nanoseconds: int = 0  # since the epoch, of a sample that was taken earlier; 0 = now


class SandboxMetrics(Struct, frozen=True, kw_only=True):
    """The samples of one pod sandbox, and of its containers by their ids."""

    id: str
    samples: tuple[RuntimeMetric, ...] = ()
    containers: Mapping[str, tuple[RuntimeMetric, ...]] = field(default_factory=dict)


def decode_sandbox_stats(stats: Any) -> SandboxStats:
    """Return one PodSandboxStats."""
    linux = stats.linux
    interfaces: dict[str, ReportedInterface] = {}
    if linux.HasField("network"):
        named = [linux.network.default_interface] if linux.network.HasField("default_interface") else []
        for interface in (*named, *linux.network.interfaces):
            interfaces.setdefault(interface.name, _interface(interface))
    return SandboxStats(
        id=stats.attributes.id,
        usage=_usage(linux),
        containers={container.attributes.id: _usage(container) for container in linux.containers},
        network_time=linux.network.timestamp / NANOSECONDS,
        interfaces=tuple(interfaces.values()) if linux.HasField("network") else None,
        processes=_value(linux.process, "process_count"),
    )


def decode_descriptor(descriptor: Any) -> MetricDescriptor:
    """Return one MetricDescriptor."""
    return MetricDescriptor(name=descriptor.name, help=descriptor.help, labels=tuple(descriptor.label_keys))


def decode_metrics(metrics: Any) -> SandboxMetrics:
    """Return one PodSandboxMetrics; a sample of a kind that is not known is left out."""
    return SandboxMetrics(
        id=metrics.pod_sandbox_id,
        samples=_samples(metrics.metrics),
        containers={container.container_id: _samples(container.metrics) for container in metrics.container_metrics},
    )


def _samples(metrics: Any) -> tuple[RuntimeMetric, ...]:
    return tuple(
        RuntimeMetric(
            name=metric.name,
            kind=_KINDS[metric.metric_type],
            labels=tuple(metric.label_values),
            value=metric.value.value,
            nanoseconds=metric.timestamp,
        )
        for metric in metrics
        if 0 <= metric.metric_type < len(_KINDS)
    )


def _usage(message: Any) -> ReportedUsage:
    """Return the usage in a ContainerStats or LinuxPodSandboxStats, of which the second has no swap."""
    parts = {name: getattr(message, name) for name in _PARTS if name in message.DESCRIPTOR.fields_by_name}
    present = {name: part for name, part in parts.items() if message.HasField(name)}
    figures = {
        figure: value
        for part, name, figure in _FIGURES
        if part in present and (value := _value(present[part], name)) is not None
    }
    pressures = {
        name: ReportedPressure(some=_share(part.psi.Some), full=_share(part.psi.Full))
        for name, part in present.items()
        if name != "swap" and part.HasField("psi")
    }
    newest = max((part.timestamp for part in present.values()), default=0)
    return ReportedUsage(time=newest / NANOSECONDS, figures=figures, pressures=pressures)


def _share(data: Any) -> ReportedShare:
    return ReportedShare(total=data.Total, avg10=data.Avg10, avg60=data.Avg60, avg300=data.Avg300)


def _interface(usage: Any) -> ReportedInterface:
    figures = {name: _value(usage, name) or 0 for name in ("rx_bytes", "rx_errors", "tx_bytes", "tx_errors")}
    return ReportedInterface(name=usage.name, **figures)


def _value(message: Any, name: str) -> int | None:
    return getattr(message, name).value if message.HasField(name) else None
