"""A pod that is to end does not wait for a call that only waits itself."""

from typing import Any

import pytest

from services.podsync.core.pod.events import TimePassed
from tests.unit.podsync.play import Play, a_pod


def deleted(pod: dict[str, Any], grace: int) -> dict[str, Any]:
    dying = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": {**pod["metadata"], **dying}}


def test_a_pod_deleted_while_its_image_is_pulled_ends_at_once_without_an_error() -> None:
    play = Play(images=set(), hang={"PullImage"}, source="api").wanting(a_pod(), deleted(a_pod(), 30))
    assert play.log[play.log.index("InterruptCall PullImage") + 1] == "KillPod"
    assert play.log.count("PullImage") == 1
    assert not [event for event in play.events if event.startswith("Warning")]


@pytest.mark.parametrize("reads", ["RunPodSandbox", "CreateContainer"])
def test_a_pod_that_is_to_end_ends_what_its_call_reads_and_not_what_the_runtime_was_asked_for(reads: str) -> None:
    play = Play(hang={reads}, unbegun={reads}, source="api").wanting(a_pod(), deleted(a_pod(), 30))
    play.drop("u1")
    play.later(60)
    assert f"InterruptCall {reads} that reads" in play.log and play.log.count(reads) == 1
    assert play.core.tracked == {} and not [event for event in play.events if event.startswith("Warning")]
    play = Play(hang={reads}, source="api").wanting(a_pod())
    for grace in (30, 20):
        play.want(deleted(a_pod(), grace))
    assert play.log[-1] == f"InterruptCall {reads} that reads", "once, and the call is waited for"


@pytest.mark.parametrize("call", ["PullImage", "CreateContainer"])
def test_a_deadline_that_passes_during_a_call_ends_its_wait(call: str) -> None:
    """The timer that fires is that of another pod, and the deadline is noticed all the same."""
    play = Play(images=set(), hang={call}, unbegun={call})
    play.want(a_pod(activeDeadlineSeconds=20, terminationGracePeriodSeconds=1))
    play.wakes = []  # the one timer fires for another pod
    play.happen(TimePassed())
    play.later(21)
    assert [line for line in play.log if line.startswith("InterruptCall ")]
    assert play.statuses["u1"].status["reason"] == "DeadlineExceeded"


def test_a_deletion_with_a_shorter_grace_ends_the_wait_for_the_longer_one() -> None:
    play = Play(hang={"KillPod"}, source="api").wanting(a_pod(), deleted(a_pod(), 30))
    assert play.log[-1] == "KillPod" and play.stops == []
    play.wall += 3
    play.want(deleted(a_pod(), 30))
    assert play.log[-1] == "KillPod", "the same grace: nothing to decide again"
    play.want(deleted(a_pod(), 5))
    assert "InterruptCall KillPod" in play.log and play.stops == [2], "5 s of which 3 have passed"
