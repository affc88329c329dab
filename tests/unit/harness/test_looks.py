"""A wait of a test looks often at first, and later for a tenth of the time that it has lasted."""

import pytest

from tests.support.waits.looks import pause_after


@pytest.mark.parametrize(
    ("waited", "least", "pause"),
    [(0.0, 0.02, 0.02), (1.0, 0.02, 0.1), (60.0, 0.02, 0.25), (1.0, 0.5, 0.5), (9.0, 1.0, 1.0)],
)
def test_pauses_grow_with_the_wait(waited: float, least: float, pause: float) -> None:
    assert pause_after(waited, least) == pytest.approx(pause)


def test_a_wait_of_a_minute_looks_hundreds_of_times_and_not_thousands() -> None:
    waited, looks = 0.0, 0
    while waited < 60.0:
        waited += pause_after(waited)
        looks += 1
    assert 200 < looks < 300
