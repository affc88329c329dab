"""How many pods start at once."""

import pytest

from services.podsync.core.start_order.places import start_places


@pytest.mark.parametrize(
    ("cpus", "pressure", "places"),
    [(1, None, 8), (2, None, 8), (4, None, 16), (64, None, 256), (4, 80.0, 16), (4, 80.1, 8), (1, 100.0, 4)],
)
def test_places_grow_with_the_cpus_and_are_half_as_many_under_pressure(
    cpus: int, pressure: float | None, places: int
) -> None:
    assert start_places(cpus, pressure) == places
