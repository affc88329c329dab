"""How often an exec plugin is run for credentials that the API server refuses."""

import pytest

from services.bootstrap.core.renewal import RefusalPace


def test_the_first_refusal_runs_the_plugin_at_once_and_further_ones_after_growing_pauses() -> None:
    pace, now, pauses = RefusalPace(), 100.0, []
    for _ in range(9):
        pause = pace.due_in(now)
        pauses.append(pause)
        now += pause
        pace.ran(now)
    assert pauses == pytest.approx([0, 2, 4, 8, 16, 32, 60, 60, 60])


def test_a_refusal_long_after_the_last_run_is_the_first_again() -> None:
    pace = RefusalPace()
    for _ in range(5):
        pace.ran(0.0)
    assert pace.due_in(1.0) == pytest.approx(31)
    assert pace.due_in(601.0) == 0.0
    pace.ran(601.0)
    assert pace.due_in(602.0) == pytest.approx(1)
