"""A runtime that restarts: a pod goes on within moments of its return, also when no other call has failed; and what it
stops later has its grace period and its preStop hook (pods.md 8.2)."""

import pytest

from services.podsync.core.outcomes import UNAVAILABLE_RETRIES
from shared.model.frozen_copy import replace
from shared.model.runtime import SandboxState
from tests.unit.podsync.play import Play, a_container, a_pod
from tests.unit.podsync.test_api_pods import a_play, an_api_pod

AWAY = ("Unavailable", "connection refused")
FLUSH = {"preStop": {"exec": {"command": ["flush"]}}}


@pytest.mark.parametrize("away", [0.2, 1.0, 1.5])
def test_a_pod_waits_at_most_as_long_again_as_the_runtime_was_away(away: float) -> None:
    play = a_play()
    play.fail_always["LookAtPod"] = ("Unavailable", "away")
    play.want(an_api_pod())
    play.later(away)
    play.fail_always.clear()
    play.later(away + 0.25)
    assert play.running("u1") == [("c", 0)]


@pytest.mark.long
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


def stopped_with_hook(play: Play) -> list[tuple[str, int]]:
    """Container and grace period in seconds of each stop that includes the preStop hook."""
    return [(stop.container, stop.grace_seconds) for stop in play.stopped if stop.pre_stop]


@pytest.mark.parametrize("failing", ["LookAtPod", "KillPod"])
def test_after_an_outage_a_sidecar_is_stopped_with_its_whole_grace_period(failing: str) -> None:
    play = Play()
    sidecar = a_container("s", restartPolicy="Always", lifecycle=FLUSH)
    play.want(a_pod(initContainers=[sidecar], restartPolicy="OnFailure", terminationGracePeriodSeconds=60))
    play.fail_always[failing] = AWAY
    if failing == "KillPod":
        play.exit("u1", 0)
    play.later(120)  # the runtime is asked every five seconds
    play.fail_always.clear()
    if failing == "LookAtPod":
        play.later(30)
        play.exit("u1", 0)
    play.later(10)
    assert stopped_with_hook(play) == [("s", 60)]
    assert play.statuses["u1"].status["phase"] == "Succeeded"


@pytest.mark.long
def test_the_image_of_another_container_that_cannot_be_pulled_shortens_no_grace_period() -> None:
    play = Play(fail_always={"PullImage": ("Unknown", "not found")})
    containers = [a_container("c", lifecycle=FLUSH), a_container("d", image="absent:1")]
    play.want(a_pod(containers=containers, terminationGracePeriodSeconds=60))
    play.later(900)
    play.sandboxes["u1"][0] = replace(play.sandboxes["u1"][0], state=SandboxState.NOTREADY)
    play.observe("u1")
    play.later(3)
    assert stopped_with_hook(play) == [("c", 60)]


def test_a_name_that_is_still_reserved_after_an_outage_is_waited_for_without_an_event() -> None:
    play = Play(fail_always={"RunPodSandbox": AWAY}).wanting(a_pod())
    play.later(180)
    play.events.clear()
    play.fail_always["RunPodSandbox"] = ("Unknown", 'failed to reserve sandbox name "web": name is reserved for "abc"')
    play.later(6)
    assert play.events == []
    play.fail_always.clear()
    play.later(0.3)
    assert play.running("u1") == [("c", 0)]
