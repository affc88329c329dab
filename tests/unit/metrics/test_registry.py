"""Instruments count by label values, in bounded memory."""

import pytest

from shared.metrics.family import PROBES, counter, exponential, gauge, histogram
from shared.metrics.registry import DROPPED, MAX_LABEL_CHARACTERS, Registry, Series

CALLS = counter("calls_total", "Calls.", "method", limit=2)
SIZE = gauge("size", "Size.")
SECONDS = histogram("seconds", "Duration.", "method", buckets=(0.1, 1.0))


def series(metrics: Registry, name: str, path: str = "/metrics") -> Series:
    return next(series for family, series in metrics.collect(path) if family.name == name)


def test_a_counter_counts_by_label_values() -> None:
    metrics = Registry()
    calls = metrics.counter(CALLS)
    calls.inc("get")
    calls.inc("get", by=2)
    calls.ensure("put")
    assert series(metrics, "calls_total") == {("get",): [3.0], ("put",): [0.0]}


def test_a_metric_without_labels_is_there_from_the_start() -> None:
    metrics = Registry()
    metrics.gauge(SIZE)
    assert series(metrics, "size") == {(): [0.0]}


@pytest.mark.parametrize(("value", "counts"), [(0.1, [1.0, 0.0, 0.0]), (0.11, [0.0, 1.0, 0.0]), (9, [0.0, 0.0, 1.0])])
def test_a_bound_belongs_to_its_bucket(value: float, counts: list[float]) -> None:
    metrics = Registry()
    metrics.histogram(SECONDS).observe(value, "get")
    assert series(metrics, "seconds") == {("get",): [*counts, value]}


def test_series_beyond_the_limit_are_counted_and_not_kept() -> None:
    metrics = Registry("pleg")
    calls = metrics.counter(CALLS)
    for method in ("a", "b", "c", "d", "a"):
        calls.inc(method)
    assert series(metrics, "calls_total") == {("a",): [2.0], ("b",): [1.0]}
    assert series(metrics, DROPPED.name) == {("pleg", "calls_total"): [2.0]}


def test_a_label_is_cut() -> None:
    metrics = Registry()
    for _ in range(2):
        metrics.counter(CALLS).inc("x" * (MAX_LABEL_CHARACTERS + 1))
    assert series(metrics, "calls_total") == {("x" * MAX_LABEL_CHARACTERS,): [2.0]}


def test_wrong_labels_and_two_declarations_are_errors() -> None:
    metrics = Registry()
    with pytest.raises(ValueError, match="calls_total has the labels"):
        metrics.counter(CALLS).inc()
    with pytest.raises(ValueError, match="calls_total is declared twice"):
        metrics.counter(counter("calls_total", "Other calls."))
    assert metrics.counter(CALLS) is metrics.counter(CALLS)


def test_what_is_measured_at_the_collection_is_measured_for_its_path_alone() -> None:
    metrics = Registry()
    size, measured = metrics.gauge(SIZE), [0]

    def measure() -> None:
        measured[0] += 1
        size.set(measured[0])

    metrics.before_collecting(measure)
    metrics.counter(counter("probes_total", "Probes.", path=PROBES)).inc()
    assert series(metrics, "probes_total", PROBES) == {(): [1.0]}
    assert series(metrics, "size") == {(): [1.0]}


def test_series_are_removed_by_their_labels() -> None:
    metrics = Registry()
    calls = metrics.counter(CALLS)
    calls.inc("a")
    calls.inc("b")
    calls.remove(lambda labels: labels == ("a",))
    assert series(metrics, "calls_total") == {("b",): [1.0]}


def test_exponential_buckets() -> None:
    assert exponential(0.005, 2.5, 3) == (0.005, 0.0125, 0.03125)
