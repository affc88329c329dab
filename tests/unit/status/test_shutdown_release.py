"""When status lets a shutdown of the machine go on: once all is written, or its time is over."""

import pytest

from services.status.core.shutdown_release import LOOK_SECONDS, ReleaseInputs, may_release, next_look
from shared.model.frozen_copy import replace

GIVEN = ReleaseInputs(now=130.0, began=100.0, pods_seconds=60.0, is_over=True, written_since=129.0)


def test_it_goes_on_once_all_has_been_written_for_a_second() -> None:
    assert may_release(GIVEN)
    assert not may_release(replace(GIVEN, now=129.9))


@pytest.mark.parametrize("change", [{"is_over": False}, {"written_since": None}])
def test_it_waits_for_pods_and_statuses_for_five_seconds_beyond_the_time_of_the_pods(change: dict[str, None]) -> None:
    waiting = replace(GIVEN, **change)  # type: ignore[arg-type]
    assert not may_release(waiting)
    assert not may_release(replace(waiting, now=164.9))
    assert may_release(replace(waiting, now=165.0))


def test_it_looks_again_soon_once_the_pods_have_stopped() -> None:
    assert next_look(GIVEN) == LOOK_SECONDS
    assert next_look(replace(GIVEN, is_over=False)) == 35.0
    assert next_look(replace(GIVEN, now=164.95)) == pytest.approx(0.05)
