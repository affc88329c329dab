"""Medians, what nine of ten reach, ratios, and goals met, missed or unknown."""

import pytest

from bench.statistics import Goal, Summary, summarize, verdict_of


def test_a_summary_of_ten() -> None:
    assert summarize([float(n) for n in range(10, 0, -1)]) == Summary(10, 5.5, 9.0, 10.0)


def test_where_more_is_better_the_bad_side_is_the_small_one() -> None:
    assert summarize([float(n) for n in range(1, 11)], "higher") == Summary(10, 5.5, 2.0, 1.0)


def test_one_sample_is_its_own_median_p90_and_max() -> None:
    assert summarize([3.0]) == Summary(1, 3.0, 3.0, 3.0)


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf")], [-0.1]])
def test_no_sample_or_one_that_is_no_figure_is_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match=r"no sample|is no figure"):
        summarize(samples)


OURS, THEIRS = Summary(3, 0.3, 0.4, 0.5), Summary(3, 1.0, 1.0, 2.0)
FLOORS = {"floor.start": Summary(3, 0.25, 0.3, 0.3)}


@pytest.mark.parametrize(
    ("goal", "met", "measured"),
    [
        (Goal("p50", "ratio", 0.3), True, 0.3),
        (Goal("p90", "ratio", 0.3), False, 0.4),
        (Goal("max", "ratio", 0.25), True, 0.25),
        (Goal("p50", "value", 0.2), False, 0.3),
        (Goal("p50", "floor", 0.1, "floor.start"), True, 0.05),
        (Goal("p50", "floor", 0.04, "floor.start"), False, 0.05),
        (Goal("p50", "floor", 0.1, "floor.unknown"), None, None),
    ],
)
def test_goals(goal: Goal, met: bool | None, measured: float | None) -> None:
    verdict = verdict_of(goal, OURS, THEIRS, FLOORS, "lower")
    assert verdict.met is met
    assert verdict.measured == (None if measured is None else pytest.approx(measured))


def test_a_goal_without_our_figure_or_theirs_is_unknown() -> None:
    goal = Goal("p50", "ratio", 0.3)
    assert verdict_of(goal, None, THEIRS, {}, "lower").met is None
    assert verdict_of(goal, OURS, None, {}, "lower").met is None
    assert verdict_of(goal, OURS, Summary(1, 0.0, 0.0, 0.0), {}, "lower").met is None


def test_a_goal_where_more_is_better_is_a_least() -> None:
    goal = Goal("p50", "ratio", 0.9)
    assert verdict_of(goal, Summary(1, 8.0, 8.0, 8.0), Summary(1, 10.0, 10.0, 10.0), {}, "higher").met is False
    assert verdict_of(goal, Summary(1, 9.5, 9.0, 9.0), Summary(1, 10.0, 10.0, 10.0), {}, "higher").met is True


def test_zero_is_a_figure_that_meets_a_goal_of_zero() -> None:
    assert verdict_of(Goal("max", "value", 0.0), summarize([0.0, 0.0]), None, {}, "lower").met is True
    assert verdict_of(Goal("max", "value", 0.0), summarize([0.0, 1.0]), None, {}, "lower").met is False
