"""The deadline of tests grows with how slow the machine is."""

import os
import time

import pytest

from tests.support.waits import deadline
from tests.support.waits.deadline import MAX_SLOWNESS, SLOWNESS, WAIT_SECONDS, measure_slowness


@pytest.mark.parametrize(
    ("work", "load", "expected"),
    [
        (1.0, 0.0, 1.0),
        (0.5, 1.0, 1.0),
        (2.5, 1.0, 2.5),
        (1.0, 6.0, 3.0),
        (40.0, 0.0, MAX_SLOWNESS),
        (1, 90, MAX_SLOWNESS),
    ],
)
def test_slow_work_and_a_high_load_give_more_time_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, work: float, load: float, expected: float
) -> None:
    """`work`: how many times as long as on an idle machine it takes; `load`: processes that want one of two cores."""
    monkeypatch.setattr(deadline, "_fixed_work", lambda: work * 0.03)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert measure_slowness() == pytest.approx(expected)


def test_the_limit_of_each_test_grows_with_the_deadline(request: pytest.FixtureRequest) -> None:
    mark = request.node.get_closest_marker("timeout")
    limit = mark.args[0] if mark else float(request.config.getini("timeout"))
    assert limit == pytest.approx(300 * SLOWNESS)
    assert pytest.approx(60 * SLOWNESS) == WAIT_SECONDS


@pytest.mark.timeout(timeout=40, method="thread")
def test_a_limit_of_its_own_grows_as_well(request: pytest.FixtureRequest) -> None:
    mark = request.node.get_closest_marker("timeout")
    assert mark.kwargs == {"timeout": pytest.approx(40 * SLOWNESS), "method": "thread"}


def test_the_work_is_measured_by_the_clock_on_the_wall() -> None:
    began = time.perf_counter()
    assert 0 < deadline._fixed_work() <= time.perf_counter() - began
