"""From samples to table, charts and exit code: measured, absent, missed, and what fails a run."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.figure import Figure, Plan, Samples
from bench.plots import write_plots
from bench.report import figure as digits
from bench.report import markdown, outcome, table
from bench.results import Document, document, problems
from bench.run import Run
from bench.statistics import Goal

START = Figure("floor.start", "floor: start", "s")
READY = Figure(
    "pods.ready",
    "create → Ready",
    "s",
    (Goal("p50", "ratio", 0.28), Goal("p50", "floor", 0.10, "floor.start")),
    "0.57 / 0.70",
)
METRICS = Figure("scrape.metrics", "GET /metrics", "ms", optional=True)
LOG = Figure("streaming.log", "log", "MB/s", better="higher")
FIGURES = (START, READY, METRICS, LOG)


def complete_run() -> Run:
    run = Run(Plan(rounds=2), ("go", "bulkhead"), seconds=120)
    for number in (1, 2):
        floor, go, bulkhead = (Samples(agent, number) for agent in ("floor", "go", "bulkhead"))
        floor.values = {START.key: [0.2]}
        go.values = {READY.key: [1.0, 1.2], METRICS.key: [9.0], LOG.key: [200.0]}
        bulkhead.values = {READY.key: [0.25, 0.45], LOG.key: [100.0]}
        bulkhead.is_absent(METRICS.key, "/metrics answers 404")
        bulkhead.detail("PSS", "podsync", 20.0 + number)
        run.sessions += [floor, go, bulkhead]
    return run


def results_of(run: Run) -> Document:
    return document(run, FIGURES, {"cores": 2})


def row(results: Document, key: str) -> Document:
    [found] = [one for one in results["figures"] if one["key"] == key]
    return dict(found)


def test_a_complete_run_has_no_problem_and_shows_each_goal() -> None:
    result = results_of(complete_run())
    assert problems(result) == []
    ready = row(result, READY.key)
    assert ready["ratio"] == pytest.approx(0.35 / 1.1)
    assert [(goal["met"], goal["text"]) for goal in ready["goals"]] == [
        (False, "p50 ≤ 0.28 ×"),
        (False, "p50 ≤ floor + 0.10 s"),
    ]
    assert ready["agents"]["bulkhead"]["summary"] == {"count": 4, "p50": 0.35, "p90": 0.45, "max": 0.45}
    assert ready["agents"]["go"]["samples"][-1] == {"round": 2, "value": 1.2}
    assert result["details"] == {"PSS": {"bulkhead": {"podsync": [21.0, 22.0]}}}
    assert outcome(result) == "goals: 0 met, 2 missed, 0 unknown"


def test_absent_is_printed_and_no_problem() -> None:
    result = results_of(complete_run())
    assert row(result, METRICS.key)["agents"]["bulkhead"]["state"] == "absent"
    assert row(result, METRICS.key)["ratio"] is None
    [line] = [line for line in table(result).splitlines() if "GET /metrics" in line]
    assert [cell.strip() for cell in line.split("|")][3:6] == ["9.00 / 9.00 / 9.00 (2)", "absent", ""]


def test_a_figure_without_a_sample_fails_the_run_by_name() -> None:
    run = complete_run()
    for samples in run.sessions:
        samples.values.pop(LOG.key, None) if samples.agent == "bulkhead" else None
    result = results_of(run)
    assert problems(result) == ["bulkhead: log: no sample"]
    assert "failed" in table(result)
    assert "**The run failed:**" in markdown(result)


def test_a_scenario_that_failed_fails_the_run_though_another_round_has_samples() -> None:
    run = complete_run()
    run.failures.append("round 2/2 go: pods: waited 180 s for pod x to be Ready")
    assert problems(results_of(run)) == run.failures


def test_the_table_is_aligned_and_shows_missed_goals_and_the_reference() -> None:
    lines = table(results_of(complete_run())).splitlines()
    assert len({len(line) for line in lines}) == 1
    [line] = [line for line in lines if "create → Ready" in line]
    assert "0.350 / 0.450 / 0.450 (4)" in line
    assert "MISSED p50 ≤ 0.28 ×: 0.318" in line
    assert "0.57 / 0.70" in line
    assert "MISSED p50 ≤ floor + 0.10 s: floor +0.150" in lines[lines.index(line) + 1]


def test_an_agent_that_was_not_run_leaves_the_goals_untold() -> None:
    run = complete_run()
    run.agents = ("bulkhead",)
    run.sessions = [samples for samples in run.sessions if samples.agent != "go"]
    result = results_of(run)
    assert problems(result) == []
    assert [goal["met"] for goal in row(result, READY.key)["goals"]] == [None, False]


def test_charts_hold_every_sample(tmp_path: Path) -> None:
    written = write_plots(results_of(complete_run()), tmp_path)
    assert sorted(path.name for path in written) == [
        "floor.svg",
        "pods.svg",
        "ratios.svg",
        "scrape.svg",
        "streaming.svg",
    ]
    drawn = ET.parse(tmp_path / "pods.svg").getroot()
    groups = [one for one in drawn.iter() if (one.get("id") or "").startswith("dots-pods.ready-")]
    dots = [one for group in groups for one in group.iter() if one.tag.endswith("}use")]
    assert (len(groups), len(dots)) == (2, 8)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.03141, "0.031"), (3.14159, "3.14"), (31.4159, "31.4"), (314.159, "314")]
)
def test_digits(value: float, text: str) -> None:
    assert digits(value) == text
