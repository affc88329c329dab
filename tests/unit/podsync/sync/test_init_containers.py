"""Init containers on the core alone: one after the other, what a failure means, and starting all over (pods.md 5.4)."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.instructions import CreateContainer, PullImage, RemoveContainers
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState, SandboxState
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step


def with_init(*names: str, **spec: Any) -> Pod:
    return a_pod(initContainers=[a_container(name) for name in names], **spec)


def waiting_of(play: Play, container: str, uid: str = "u1") -> dict[str, Any]:
    status = play.statuses[uid].status
    every = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    found = next(s for s in every if s["name"] == container)
    waiting: dict[str, Any] = found["state"].get("waiting") or {}
    return waiting


def a_lost_sandbox(play: Play, uid: str = "u1") -> None:
    """The machine was restarted: everything has ended, nothing was removed."""
    at = int(play.wall * 1e9)
    play.sandboxes[uid] = [replace(s, state=SandboxState.NOTREADY) for s in play.sandboxes[uid]]
    play.containers[uid] = [
        replace(c, state=ContainerState.EXITED, exit_code=137, finished_at=at)
        if c.state is ContainerState.RUNNING
        else c
        for c in play.containers[uid]
    ]
    play.restart()


def test_they_run_one_after_the_other_and_then_the_pod() -> None:
    play = Play().wanting(with_init("a", "b"))
    assert play.running("u1") == [("a", 0)]
    play.exit("u1", 0, "a")
    assert play.running("u1") == [("b", 0)]
    play.exit("u1", 0, "b")
    assert play.running("u1") == [("c", 0)]
    assert [name for _, name, _ in play.made] == ["a", "b", "c"]
    expected = ["LookAtPod", "PreparePod", "RunPodSandbox", *3 * ["InspectImage", "CreateContainer", "StartContainer"]]
    assert play.log == expected


def test_a_failed_one_is_run_again_at_once_and_then_after_a_back_off() -> None:
    play = Play().wanting(with_init("a", "b"))
    play.exit("u1", 1, "a")
    assert play.running("u1") == [("a", 1)]
    play.exit("u1", 1, "a")
    assert play.running("u1") == []
    assert play.reason("a") == (
        "CrashLoopBackOff",
        "back-off 10s restarting failed container=a pod=web_default(u1)",
    )
    play.later(9.5)
    assert play.running("u1") == []
    play.later(1)
    assert play.running("u1") == [("a", 2)]
    play.exit("u1", 0, "a")
    assert play.running("u1") == [("b", 0)]


def test_the_back_off_survives_a_restart_of_podsync() -> None:
    play = Play().wanting(with_init("a"))
    play.exit("u1", 1, "a")
    play.exit("u1", 1, "a")
    play.restart()
    play.later(9)
    assert play.running("u1") == []
    play.later(1.5)
    assert play.running("u1") == [("a", 2)]


@pytest.mark.parametrize(("policy", "again"), [("Always", True), ("OnFailure", True), ("Never", False)])
def test_whether_a_failed_one_is_run_again_is_up_to_the_pods_policy(policy: str, again: bool) -> None:
    play = Play().wanting(with_init("a", restartPolicy=policy))
    play.exit("u1", 3, "a")
    assert play.running("u1") == ([("a", 1)] if again else [])


def test_one_that_ran_out_of_memory_has_failed_whatever_its_exit_code() -> None:
    play = Play().wanting(with_init("a"))
    play.exit("u1", 0, "a", reason="OOMKilled")
    assert play.running("u1") == [("a", 1)]
    assert "KillPod" not in play.log


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_the_policy_goes_by_the_exit_code_of_one_that_ran_out_of_memory(policy: str) -> None:
    play = Play().wanting(with_init("a", restartPolicy=policy))
    play.log.clear()
    play.exit("u1", 0, "a", reason="OOMKilled")
    assert play.log[0] == "KillPod"  # as for one that may not run again; OnFailure then makes another sandbox
    assert [s.attempt for s in play.sandboxes["u1"]] == ([1] if policy == "OnFailure" else [0])


def test_one_that_succeeded_does_not_run_again_though_the_pod_restarts_always() -> None:
    play = Play().wanting(with_init("a"))
    play.exit("u1", 0, "a")
    for _ in range(2):
        play.exit("u1", 1)
        play.later(11)
    assert [made for made in play.made if made[1] == "a"] == [("u1", "a", 0)]
    assert play.running("u1") == [("c", 2)]


def test_the_pod_goes_on_where_it_was_when_podsync_restarts() -> None:
    play = Play().wanting(with_init("a", "b"))
    play.exit("u1", 0, "a")
    play.restart()
    assert play.running("u1") == [("b", 0)]
    assert play.made == [("u1", "a", 0), ("u1", "b", 0)]


def test_one_that_ended_while_podsync_was_dead_is_followed_by_the_next() -> None:
    play = Play().wanting(with_init("a", "b"))
    gone = play.containers["u1"][0]
    play.containers["u1"][0] = replace(gone, state=ContainerState.EXITED, finished_at=int(play.wall * 1e9))
    play.restart()
    assert play.running("u1") == [("b", 0)]


def test_after_a_reboot_all_of_them_run_again_in_the_new_sandbox_under_the_next_attempts() -> None:
    play = Play().wanting(with_init("a", "b"))
    play.exit("u1", 0, "a")
    play.exit("u1", 0, "b")
    play.log.clear()
    a_lost_sandbox(play)
    assert play.running("u1") == [("a", 1)]
    assert play.log == [
        "LookAtPod",
        "PreparePod",
        "KillPod",
        "RemoveContainers",
        "RunPodSandbox",
        "InspectImage",
        "CreateContainer",
        "StartContainer",
    ]
    removed = next(call for call in play.calls if isinstance(call, RemoveContainers))
    assert sorted(name for _, name, _ in removed.containers) == ["a", "b"] and not removed.keep_logs
    play.exit("u1", 0, "a")
    play.exit("u1", 0, "b")
    assert play.running("u1") == [("c", 1)]
    assert "Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created." in play.events


def test_a_sandbox_lost_while_one_runs_starts_from_the_first() -> None:
    play = Play().wanting(with_init("a", "b"))
    play.exit("u1", 0, "a")
    a_lost_sandbox(play)
    assert play.running("u1") == [("a", 1)]
    play.exit("u1", 0, "a")
    assert play.running("u1") == [("b", 1)]


def test_a_pod_that_never_restarts_gets_no_second_sandbox_once_an_init_container_ran() -> None:
    play = Play().wanting(with_init("a", restartPolicy="Never"))
    a_lost_sandbox(play)
    assert [s.attempt for s in play.sandboxes["u1"]] == [0]
    assert play.running("u1") == []


def test_an_image_that_cannot_be_pulled_holds_the_following_back() -> None:
    play = Play(fail_always={"PullImage": ("NotFound", "no such image")})
    pod = with_init("a", "b")
    pod["spec"]["initContainers"][0]["image"] = "nope:1"
    play.want(pod)
    play.later(6)
    assert play.reason("a")[0] == "ImagePullBackOff"
    assert play.made == []
    assert {call.container for call in play.calls if isinstance(call, PullImage)} == {"a"}


def test_an_image_of_a_regular_container_that_cannot_be_pulled_holds_no_other_back() -> None:
    play = Play(fail_always={"PullImage": ("NotFound", "no such image")})
    pod = with_init("a")
    pod["spec"]["containers"] = [a_container("c", image="nope:1"), a_container("d")]
    play.want(pod)
    play.exit("u1", 0, "a")
    assert play.running("u1") == [("d", 0)]


def test_only_the_newest_run_of_each_is_kept() -> None:
    play = Play().wanting(with_init("a"))
    for _ in range(3):
        play.exit("u1", 1, "a")
        play.later(45)
    play.exit("u1", 0, "a")
    assert [c.attempt for c in play.containers["u1"] if c.name == "a"] == [3]


def test_one_that_was_made_and_not_started_is_started_and_not_made_again() -> None:
    play = Play(hang={"StartContainer"}).wanting(with_init("a"))
    play.restart()
    assert play.running("u1") == [("a", 0)] and play.made == [("u1", "a", 0)]


def test_one_in_an_unknown_state_is_killed_and_run_again() -> None:
    play = Play().wanting(with_init("a"))
    play.containers["u1"][0] = replace(play.containers["u1"][0], state=ContainerState.UNKNOWN)
    play.observe("u1")
    assert play.running("u1") == [("a", 1)]
    text = 'Normal Killing: Init container is in "unknown" state, try killing it before restart'
    assert text in play.events


def test_a_pod_that_is_deleted_during_them_ends_and_starts_nothing_further() -> None:
    play = Play().wanting(with_init("a", "b"))
    play.drop("u1")
    assert "Normal Killing: Stopping container a" in play.events
    play.later(70)
    assert [name for _, name, _ in play.made] == ["a"] and play.disk == {}


def test_the_first_failure_of_the_last_one_under_never_ends_the_pod() -> None:
    play = Play().wanting(with_init("a", "b", restartPolicy="Never"))
    play.exit("u1", 0, "a")
    play.exit("u1", 2, "b")
    assert play.published["u1"].admitted.state is PodState.FINISHED
    assert play.statuses["u1"].status["phase"] == "Failed"
    assert [name for _, name, _ in play.made] == ["a", "b"]
    assert play.log.count("KillPod") == 1 and play.stops == [], "nothing runs: the sandbox alone is stopped"


def test_before_the_first_one_ran_the_others_wait_for_the_pod_to_initialize() -> None:
    play = Play(images=set(), fail_always={"PullImage": ("NotFound", "no such image")}).wanting(with_init("a"))
    assert waiting_of(play, "a")["reason"] == "ErrImagePull"
    assert waiting_of(play, "c")["reason"] == "PodInitializing"


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("only_urgent", [False, True])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("step", every_step(109))
def test_a_kill_at_any_step_changes_nothing_in_the_end(step: int, listed: bool, only_urgent: bool) -> None:
    play = Play(kill_at=step, listed=listed, only_urgent=only_urgent).wanting(with_init("a", "b"))
    play.later(2)
    play.exit("u1", 0, "a")
    play.later(2)
    play.exit("u1", 1, "b")
    play.later(2)
    play.exit("u1", 0, "b")
    play.later(2)
    assert play.running("u1") == [("c", 0)]
    assert play.made == [("u1", "a", 0), ("u1", "b", 0), ("u1", "b", 1), ("u1", "c", 0)]
    play.drop("u1")
    play.later(70)
    assert play.running("u1") == [] and play.disk == {}
    assert play.sandboxes["u1"] == [] and play.containers["u1"] == []


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(59))
def test_a_kill_at_any_step_of_starting_all_over_changes_nothing_in_the_end(step: int) -> None:
    play = Play(only_urgent=True).wanting(with_init("a"))
    play.exit("u1", 0, "a")
    play.steps, play.kill_at = 0, step
    a_lost_sandbox(play)
    play.later(2)
    play.exit("u1", 0, "a")
    play.later(2)
    assert play.running("u1") == [("c", 1)]
    assert play.made[2:] == [("u1", "a", 1), ("u1", "c", 1)]


def test_what_a_container_is_made_of_is_the_sandbox_that_stands() -> None:
    play = Play().wanting(with_init("a"))
    a_lost_sandbox(play)
    play.exit("u1", 0, "a")
    created = [call for call in play.calls if isinstance(call, CreateContainer)]
    assert [(call.container, call.sandbox_attempt) for call in created] == [("a", 0), ("a", 1), ("c", 1)]
