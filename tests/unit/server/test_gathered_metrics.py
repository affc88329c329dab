"""The metrics of several processes as one page, which Prometheus's own parser reads."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from bus.messages.metrics import MetricFamily, Metrics
from services.server.core.metrics.gathered_metrics import Counters, GatheredMetrics, with_sums
from services.server.core.metrics.metrics_text import metrics_text
from shared.metrics.family import Kind
from shared.text.json_text import json_bytes


def counted(value: float, incarnation: str = "1", name: str = "calls_total", kind: Kind = Kind.COUNTER) -> Metrics:
    family = MetricFamily(name=name, kind=kind, help="Calls.", labels=("to",), series=((("a",), (value,)),))
    return Metrics(incarnation=incarnation, families=(family,))


def samples(families: list[MetricFamily]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parsed = text_string_to_metric_families(metrics_text(families).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parsed
        for sample in family.samples
    }


def gathered(keeps_ended: bool = True, **answers: Metrics) -> GatheredMetrics:
    found = GatheredMetrics(keeps_ended=keeps_ended)
    for process, answer in answers.items():
        found.take(process, answer)
    return found


def test_equal_series_of_two_processes_are_one_sum() -> None:
    assert samples(gathered(pleg=counted(2), podsync=counted(3)).families()) == {("calls_total", (("to", "a"),)): 5}


def test_a_counter_goes_on_when_its_process_restarts() -> None:
    found = gathered(pleg=counted(2), podsync=counted(30))
    for incarnation, value in (("2", 1.0), ("2", 4.0), ("3", 1.0)):
        found.take("podsync", counted(value, incarnation))
    assert samples(found.families()) == {("calls_total", (("to", "a"),)): 2 + 30 + 4 + 1}


PROCESSES = ("pleg", "podsync", "server")
STEPS = st.one_of(
    st.tuples(st.sampled_from(("count", "kill")), st.sampled_from(PROCESSES)),
    st.tuples(st.just("scrape"), st.sampled_from(("", "pleg is missing", "killed before", "killed after"))),
)


@pytest.mark.long
@given(st.lists(STEPS, max_size=40))
@example([("count", "pleg"), ("scrape", ""), ("kill", "pleg"), ("kill", "server"), ("scrape", "")])
@example([("count", "server"), ("scrape", "killed after"), ("scrape", ""), ("kill", "server"), ("scrape", "")])
@example([("count", "pleg"), ("scrape", ""), ("kill", "pleg"), ("scrape", "killed before"), ("scrape", "")])
@example([("count", "pleg"), ("scrape", ""), ("kill", "server"), ("scrape", "pleg is missing")])
def test_no_sum_falls_whatever_is_killed_before_and_after_a_save(steps: list[tuple[str, str]]) -> None:
    """What is shown is all that was counted up to the newest save in which each process, ended or not, was seen."""
    running = dict.fromkeys(PROCESSES, 0.0)  # what each has counted
    incarnations = dict.fromkeys(PROCESSES, 1)
    found, file, seen, shown = GatheredMetrics(keeps_ended=True), b"", dict[tuple[str, int], float](), 0.0

    def kill(process: str) -> None:
        nonlocal found
        running[process], incarnations[process] = 0.0, incarnations[process] + 1
        if process == "server":
            found = GatheredMetrics(keeps_ended=True)
            if file:
                found.restore(msgspec.json.decode(file, type=Counters))

    for step, what in steps:
        if step == "count":
            running[what] += 1
        elif step == "kill":
            kill(what)
        else:
            answers = [process for process in PROCESSES if what != f"{process} is missing"]
            for process in PROCESSES:
                if process in answers:
                    found.take(process, counted(running[process], str(incarnations[process])))
                else:
                    found.miss(process)
            if what == "killed before":
                kill("server")
                continue
            file = json_bytes(found.counters())
            seen.update({(process, incarnations[process]): running[process] for process in answers})
            if what == "killed after":
                kill("server")
                continue
            before, shown = shown, samples(found.families())["calls_total", (("to", "a"),)]
            assert before <= shown == sum(seen.values())


def test_a_counter_that_a_restarted_process_has_not_counted_yet_stays() -> None:
    found = gathered(podsync=counted(30))
    found.take("podsync", counted(1, "2", "others_total"))
    assert samples(found.families()) == {
        ("calls_total", (("to", "a"),)): 30,
        ("others_total", (("to", "a"),)): 1,
    }


def test_the_start_is_that_of_the_first_process_that_was_counted() -> None:
    def started(at: float, incarnation: str) -> Metrics:
        return counted(at, incarnation, "bulkhead_process_start_time_seconds", Kind.GAUGE)

    found = gathered(pleg=started(100, "1"), podsync=started(200, "1"))
    found.take("pleg", started(300, "2"))
    assert samples(with_sums(found.families(), found.since))["process_start_time_seconds", ()] == 100
    later = GatheredMetrics(keeps_ended=True)
    later.restore(msgspec.json.decode(json_bytes(found.counters()), type=Counters))
    later.take("podsync", started(400, "2"))
    assert samples(with_sums(later.families(), later.since))["process_start_time_seconds", ()] == 100
    assert later.counters().processes["podsync"].newest == ()  # of no use to a later server


def test_series_about_pods_end_with_their_process() -> None:
    found = gathered(keeps_ended=False, pleg=counted(30))
    found.take("pleg", counted(1, "2"))
    assert samples(found.families()) == {("calls_total", (("to", "a"),)): 1}


def test_a_process_that_did_not_answer_keeps_its_counters_and_loses_its_gauges() -> None:
    found = gathered(pleg=counted(2))
    assert samples(found.families())
    found.miss("pleg")
    assert samples(found.families()) == {("calls_total", (("to", "a"),)): 2}
    found = gathered(pleg=counted(2, name="size", kind=Kind.GAUGE))
    found.miss("pleg")
    assert samples(found.families()) == {}


def test_a_declaration_of_another_version_is_left_out() -> None:
    other = MetricFamily(name="calls_total", kind=Kind.COUNTER, help="", labels=(), series=(((), (7.0,)),))
    found = gathered(pleg=Metrics(incarnation="1", families=(other,)), podsync=counted(3))
    assert samples(found.families()) == {("calls_total", (("to", "a"),)): 3}


def test_a_histogram_has_growing_buckets_a_sum_and_a_count() -> None:
    family = MetricFamily(
        name="seconds", kind=Kind.HISTOGRAM, help="Time.", buckets=(0.1, 1.0), series=(((), (1.0, 2.0, 4.0, 12.5)),)
    )
    assert samples([family]) == {
        ("seconds_bucket", (("le", "0.1"),)): 1,
        ("seconds_bucket", (("le", "1"),)): 3,
        ("seconds_bucket", (("le", "+Inf"),)): 7,
        ("seconds_sum", ()): 12.5,
        ("seconds_count", ()): 7,
    }


def test_values_and_labels_survive_the_text() -> None:
    labels = ('a"b\\c\nd', "", "ü")
    for value in (0.0, -1.0, 1e18, 1.5e-9, 123456789.25):
        family = MetricFamily(
            name="x", kind=Kind.GAUGE, help="a\nb\\", labels=("p", "q", "r"), series=((labels, (value,)),)
        )
        assert samples([family]) == {("x", (("p", labels[0]), ("q", ""), ("r", "ü"))): value}
    endless = MetricFamily(name="x", kind=Kind.GAUGE, help="", series=(((), (None,)),))
    assert samples([endless]) == {("x", ()): math.inf}


def test_the_processes_are_shown_as_one() -> None:
    def processes(name: str, kind: Kind, *values: float) -> MetricFamily:
        series: Any = tuple(((str(number),), (value,)) for number, value in enumerate(values))
        return MetricFamily(name=f"bulkhead_process_{name}", kind=kind, help="", labels=("process",), series=series)

    families = [
        processes("cpu_seconds_total", Kind.COUNTER, 1.5, 2.0),
        processes("proportional_memory_bytes", Kind.GAUGE, 10, 20),
        processes("start_time_seconds", Kind.GAUGE, 200, 100),
    ]
    found = samples(with_sums(families))
    assert found["process_cpu_seconds_total", ()] == 3.5
    assert found["process_resident_memory_bytes", ()] == 30
    assert found["process_start_time_seconds", ()] == 100
    assert ("process_open_fds", ()) not in found
