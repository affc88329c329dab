"""When status lets a shutdown of the machine go on: once all is written, or its time is over."""

import pytest

from services.status.core.shutdown_release import LOOK_SECONDS, ReleaseInputs, may_release, next_look
from shared.model.frozen_copy import replace

GIVEN = ReleaseInputs(now=130.0, began=100.0, pods_seconds=60.0, over_since=128.0, written_since=129.0)


def test_it_goes_on_once_all_has_been_written_for_a_second() -> None:
    assert may_release(GIVEN)
    assert not may_release(replace(GIVEN, now=129.9))


@pytest.mark.parametrize(
    ("change", "until"),
    [
        ({"over_since": None}, 165.0),  # podsync says nothing: all periods, and five seconds more
        ({"written_since": None}, 133.0),  # a status cannot be written: five seconds from the last pod on
        ({"written_since": None, "over_since": 163.0}, 165.0),
    ],
)
def test_it_waits_for_the_statuses_for_five_seconds_after_the_pods(change: dict[str, None], until: float) -> None:
    waiting = replace(GIVEN, **change)  # type: ignore[arg-type]
    assert not may_release(replace(waiting, now=until - 0.1))
    assert may_release(replace(waiting, now=until))


def test_it_looks_again_soon_once_the_pods_have_stopped() -> None:
    assert next_look(GIVEN) == LOOK_SECONDS
    assert next_look(replace(GIVEN, over_since=None)) == 35.0
    assert next_look(replace(GIVEN, now=132.95)) == pytest.approx(0.05)
