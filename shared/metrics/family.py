"""The declaration of a metric family: name, kind, labels and buckets, as node.md 9 lists them; pure."""

from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """The type in the Prometheus text format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


METRICS, PROBES, SLIS = "/metrics", "/metrics/probes", "/metrics/slis"

# Upper bounds of buckets in the family's unit, without +Inf.
DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Family(Struct, frozen=True):
    """One metric family. `path` is where it is served; `limit` is the largest number of series of one process: what is
    beyond is counted in bulkhead_metric_observations_dropped_total."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    path: str = METRICS
    limit: int = 500


def counter(name: str, help_text: str, *labels: str, path: str = METRICS, limit: int = 500) -> Family:
    """Declare a counter."""
    return Family(name, Kind.COUNTER, help_text, labels, path=path, limit=limit)


def gauge(name: str, help_text: str, *labels: str, path: str = METRICS, limit: int = 500) -> Family:
    """Declare a gauge."""
    return Family(name, Kind.GAUGE, help_text, labels, path=path, limit=limit)


def histogram(
    name: str,
    help_text: str,
    *labels: str,
    buckets: tuple[float, ...] = DEFAULT_BUCKETS,
    path: str = METRICS,
    limit: int = 500,
) -> Family:
    """Declare a histogram."""
    return Family(name, Kind.HISTOGRAM, help_text, labels, buckets, path, limit)


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return `count` bounds, each `factor` times the one before."""
    bounds = [start]
    for _ in range(count - 1):
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)
