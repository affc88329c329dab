"""A pod that runs and whose cgroup is missing is stopped before the cgroup is made, and restarts in it (pods.md
5.1.7)."""

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.events import TimePassed
from shared.model.runtime import SandboxState
from tests.unit.podsync.play import Play, a_container, a_pod, every_step


def status_of(play: Play) -> dict[str, object]:
    return dict(play.statuses["u1"].status)


def outside(play: Play) -> None:
    """The next podsync finds the pod without its cgroup."""
    play.outside.add("u1")
    play.log.clear()
    play.restart()


def test_the_whole_pod_is_stopped_and_starts_in_a_new_sandbox() -> None:
    play = Play().wanting(a_pod(containers=[a_container("c"), a_container("d")]))
    play.events.clear()
    outside(play)
    assert play.log[:6] == ["LookAtPod", "PreparePod", "KillPod", "PreparePod", "KillPod", "RunPodSandbox"]
    assert play.stops == [30, 30]
    assert sorted(play.running("u1")) == [("c", 1), ("d", 1)]
    assert [s.attempt for s in play.look("u1").sandboxes if s.state is SandboxState.READY] == [1]
    assert play.outside == set()
    stopping = ["Normal Killing: Stopping container c", "Normal Killing: Stopping container d"]
    changed = "Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created."
    assert sorted(play.events[:2]) == stopping and play.events[2] == changed


def test_an_observation_between_two_events_counts_too() -> None:
    play = Play().wanting(a_pod())
    play.outside.add("u1")
    play.log.clear()
    play.later(95)  # the look that nothing asks for comes within 90 s
    assert play.log[:4] == ["LookAtPod", "PreparePod", "KillPod", "PreparePod"]
    assert play.running("u1") == [("c", 1)]


def test_a_pod_of_which_nothing_runs_gets_its_cgroup_and_keeps_its_sandbox() -> None:
    play = Play().wanting(a_pod())
    play.exit("u1", 1)
    play.exit("u1", 1)
    assert play.running("u1") == [], "it waits"
    outside(play)
    assert play.log[:2] == ["LookAtPod", "PreparePod"] and "KillPod" not in play.log
    play.later(11)
    assert play.running("u1") == [("c", 2)]
    assert [s.attempt for s in play.sandboxes["u1"]] == [0]


def test_a_pod_that_never_restarts_ends_and_no_cgroup_is_made_for_it() -> None:
    play = Play().wanting(a_pod(restartPolicy="Never"))
    outside(play)
    assert play.log.count("PreparePod") == 1 and play.outside == {"u1"}
    assert play.running("u1") == []
    assert play.published["u1"].admitted.state is PodState.FINISHED


def test_a_kill_that_fails_is_tried_again_before_anything_is_made() -> None:
    play = Play().wanting(a_pod())
    play.fail["KillPod"] = ("Unknown", "no")
    outside(play)
    assert play.log[-1] == "KillPod" and play.running("u1") == [("c", 0)]
    play.later(2)
    assert play.running("u1") == [("c", 1)]
    assert play.log.index("RunPodSandbox") > play.log.index("PreparePod", 2)


def test_the_start_that_follows_counts_like_that_after_an_end_by_itself() -> None:
    play = Play().wanting(a_pod())
    play.exit("u1", 1)
    play.later(30)
    outside(play)
    assert play.running("u1") == []
    play.later(9)
    assert play.running("u1") == []
    play.later(2)
    assert play.running("u1") == [("c", 2)]


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(42))
def test_a_death_at_any_step_of_it_changes_nothing_in_the_end(step: int) -> None:
    play = Play(only_urgent=True).wanting(a_pod())
    play.kill_at, play.steps = step, 0
    outside(play)
    play.happen(TimePassed())
    play.later(5)
    assert play.running("u1") == [("c", 1)]
    assert play.outside == set()
    assert [s.attempt for s in play.look("u1").sandboxes if s.state is SandboxState.READY] == [1]
