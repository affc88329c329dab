"""The slope of memory over time: robust against single outliers, in KiB a minute."""

import pytest

from tests.soak.trend import COARSE_LIMIT, GROWTH_LIMIT, MINUTES_NEEDED, SLOPE_LIMIT, Point, growth_of, theil_sen


def line(slope: float, count: int = 12, start: float = 20_000.0) -> list[Point]:
    return [Point(float(minute), start + slope * minute) for minute in range(count)]


@pytest.mark.parametrize("slope", [-30.0, 0.0, 7.5, 300.0])
def test_the_slope_of_a_line_is_its_own(slope: float) -> None:
    assert theil_sen(line(slope)) == pytest.approx(slope)


def test_two_wild_points_do_not_move_it() -> None:
    points = line(10.0)
    points[3] = Point(3.0, 900_000.0)
    points[8] = Point(8.0, 0.0)
    assert theil_sen(points) == pytest.approx(10.0, abs=3.0)


def test_uneven_moments_and_equal_ones() -> None:
    assert theil_sen([Point(0, 0), Point(1, 10), Point(10, 100)]) == pytest.approx(10.0)
    assert theil_sen([Point(1, 0), Point(1, 50)]) == 0.0
    assert theil_sen([Point(1, 7)]) == 0.0


def test_growth_compares_the_last_third_with_the_first() -> None:
    growth = growth_of([Point(m, kib) for m, kib in enumerate([10, 12, 11, 50, 60, 70, 30, 31, 29])])
    assert (growth.first, growth.last, growth.points) == (11, 30, 9)


def test_a_leak_needs_both_a_slope_and_a_growth() -> None:
    minutes = 120
    leaking = line(SLOPE_LIMIT + 15, minutes)
    assert growth_of(leaking).leaks
    assert not growth_of(line(SLOPE_LIMIT - 1, minutes)).leaks
    assert not growth_of(line(SLOPE_LIMIT + 15, int(MINUTES_NEEDED) + 5)).leaks, "a few hundred KiB so far"
    steps = [Point(float(m), 20_000.0 + (GROWTH_LIMIT + 500 if m > 6 else 0)) for m in range(minutes)]
    assert not growth_of(steps).leaks, "one step up and then flat"


def test_in_a_short_run_only_a_coarse_growth_counts() -> None:
    assert growth_of([Point(0, 0), Point(1, COARSE_LIMIT + 1)]).leaks
    assert not growth_of([Point(0, 0), Point(1, COARSE_LIMIT - 1)]).leaks
    assert not growth_of(line(500.0, int(MINUTES_NEEDED))).leaks
    assert growth_of(line(500.0, int(MINUTES_NEEDED) + 1)).leaks
