"""A runtime that restarts: a pod goes on within moments of its return, also when no other call has failed."""

import pytest

from services.podsync.core.outcomes import UNAVAILABLE_RETRIES
from tests.unit.podsync.test_api_pods import a_play, an_api_pod


@pytest.mark.parametrize("away", [0.2, 1.0, 1.5])
def test_a_pod_waits_at_most_as_long_again_as_the_runtime_was_away(away: float) -> None:
    play = a_play()
    play.fail_always["LookAtPod"] = ("Unavailable", "away")
    play.want(an_api_pod())
    play.later(away)
    play.fail_always.clear()
    play.later(away + 0.25)
    assert play.running("u1") == [("c", 0)]


def test_a_runtime_that_stays_away_is_asked_every_five_seconds_however_long() -> None:
    play = a_play()
    play.fail_always["LookAtPod"] = ("Unavailable", "away")
    play.want(an_api_pod())
    for _ in range(40):
        play.later(200)
    play.fail_always.clear()
    play.later(UNAVAILABLE_RETRIES.cap)
    assert play.running("u1") == [("c", 0)]


def test_a_runtime_that_goes_away_before_the_cgroup_has_a_name_is_no_event_of_every_pod() -> None:
    play = a_play()
    play.fail_always["PreparePod"] = ("Unavailable", "away")
    play.want(an_api_pod())
    play.later(1.0)
    assert not [event for event in play.events if "pod container" in event]
    play.fail_always["PreparePod"] = ("", "cannot write '2' to /sys/fs/cgroup/cpu.shares")
    play.later(UNAVAILABLE_RETRIES.cap)
    why = "unable to ensure pod container exists: cannot write '2' to /sys/fs/cgroup/cpu.shares"
    assert f"Warning FailedCreatePodContainer: {why}" in play.events
    play.fail_always.clear()
    play.later(120)
    assert play.running("u1") == [("c", 0)]
