"""What fails a run: a scenario that cannot take its sample, or takes none, or one that is no figure."""

from typing import Any

import pytest

from bench.errors import BenchError
from bench.figure import Figure, Plan, Samples, Scenario
from bench.run import Run, run_scenario

READY, METRICS = Figure("pods.ready", "create → Ready", "s"), Figure("scrape.metrics", "GET /metrics", "ms")


async def play(samples: Samples, act: Any) -> tuple[Run, list[str]]:
    run, lines = Run(Plan(), ("bulkhead",)), list[str]()

    async def scenario(place: Any, taken: Samples, plan: Plan) -> None:
        act(taken)

    one = Scenario("pods", scenario, (READY, METRICS))
    await run_scenario(None, one, samples, run, "round 1/2 bulkhead", lines.append)  # type: ignore[arg-type]
    return run, lines


def both(taken: Samples) -> None:
    taken.sample(READY.key, 0.5)
    taken.is_absent(METRICS.key, "/metrics answers 404")


def one_of_them(taken: Samples) -> None:
    taken.sample(READY.key, 0.5)


def not_a_figure(taken: Samples) -> None:
    both(taken)
    taken.sample(READY.key, float("nan"))


def fails(taken: Samples) -> None:
    raise BenchError("waited 180 s for pod a to be Ready")


async def test_a_complete_scenario_prints_its_figures_and_has_no_failure() -> None:
    run, lines = await play(Samples("bulkhead", 1), both)
    assert run.failures == []
    assert lines == [
        "round 1/2 bulkhead: pods …",
        "round 1/2 bulkhead:   create → Ready: 0.5 s (max 0.5, n 1)",
        "round 1/2 bulkhead:   GET /metrics: absent (/metrics answers 404)",
    ]


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (one_of_them, "round 1/2 bulkhead: pods: GET /metrics: no sample"),
        (not_a_figure, "round 1/2 bulkhead: pods: create → Ready: nan is no figure"),
        (fails, "round 1/2 bulkhead: pods: waited 180 s for pod a to be Ready"),
    ],
)
async def test_what_is_missing_is_named_in_one_line(act: Any, line: str) -> None:
    run, lines = await play(Samples("bulkhead", 1), act)
    assert run.failures == [line]
    assert line in lines
