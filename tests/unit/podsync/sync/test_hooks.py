"""postStart and preStop as podsync decides on them: when they are owed, and what their failure means (pods.md 8)."""

from typing import Any

import pytest

from services.podsync.core.pod.instructions import KillContainer, KillPod
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step

POST = {"postStart": {"exec": {"command": ["true"]}}}
PRE = {"preStop": {"exec": {"command": ["true"]}}}
FAILED = {"RunPostStartHook": ("", "Exec lifecycle hook ([false]) failed")}


def hooked(name: str = "c", lifecycle: Pod | None = None, **fields: Any) -> Pod:
    return a_container(name, lifecycle=POST if lifecycle is None else lifecycle, **fields)


def deleted(pod: Pod, grace: int) -> Pod:
    given = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    return pod | {"metadata": pod["metadata"] | given}


def test_the_hook_follows_the_start_and_comes_before_the_next_container() -> None:
    play = Play().wanting(a_pod(containers=[hooked(), a_container("d")]))
    starts = [name for name in play.log if name in ("StartContainer", "RunPostStartHook")]
    assert starts == ["StartContainer", "RunPostStartHook", "StartContainer"]
    assert play.core.tracked["u1"].saved.container("c").hook_owed == ""


def test_a_hook_under_way_holds_the_next_start_back() -> None:
    play = Play(hang={"RunPostStartHook"}).wanting(a_pod(initContainers=[hooked("s", restartPolicy="Always")]))
    play.later(300)
    assert play.running("u1") == [("s", 0)]


def test_a_hook_without_an_answer_is_run_again() -> None:
    play = Play(hang={"RunPostStartHook"}).wanting(a_pod(containers=[hooked()]))
    assert play.hooks == []
    play.restart()
    assert play.hooks == [play.containers["u1"][0].id]
    play.restart()
    assert len(play.hooks) == 1


def test_a_hook_of_a_container_that_has_ended_is_owed_no_longer() -> None:
    play = Play(hang={"RunPostStartHook"}).wanting(a_pod(containers=[hooked()], restartPolicy="Never"))
    play.exit("u1", 0)
    play.restart()
    assert play.hooks == [] and play.statuses["u1"].status["phase"] == "Succeeded"


def test_a_failed_hook_stops_the_container_with_its_grace_and_the_reason() -> None:
    play = Play(fail_always=FAILED).wanting(a_pod(containers=[hooked(lifecycle=POST | PRE)]))
    assert play.events[3:5] == [
        "Warning FailedPostStartHook: PostStartHook failed",
        "Normal Killing: FailedPostStartHook",
    ]
    assert (play.stopped[0].grace_seconds, play.stopped[0].pre_stop) == (30, True)
    assert play.running("u1") == []


def test_the_reason_is_shown_with_the_hooks_own_words_and_then_that_it_waits() -> None:
    play = Play(fail_always=FAILED).wanting(a_pod(containers=[hooked()]))
    shown = [play.reason("c")[0]]
    assert shown == ["CrashLoopBackOff"], "the first restart was immediate, the second waits"
    assert play.made == [("u1", "c", 0), ("u1", "c", 1)]
    once = Play(fail=dict(FAILED), hang={"KillContainer"})
    once.want(a_pod(containers=[hooked()]))
    assert once.reason("c") == ("PostStartHookError", "Exec lifecycle hook ([false]) failed")


def test_a_failed_hook_under_never_fails_the_pod() -> None:
    play = Play(fail_always=FAILED).wanting(a_pod(containers=[hooked(), a_container("d")], restartPolicy="Never"))
    assert play.running("u1") == [("d", 0)]
    assert play.made == [("u1", "c", 0), ("u1", "d", 0)]


def test_a_container_whose_hook_failed_is_stopped_and_its_hook_not_run_again_by_the_next_process() -> None:
    play = Play(fail=dict(FAILED), hang={"KillContainer"}).wanting(a_pod(containers=[hooked()], restartPolicy="Never"))
    assert play.running("u1") == [("c", 0)]
    play.restart()
    assert play.running("u1") == [] and play.hooks == []


def test_a_pod_that_is_deleted_does_not_wait_for_its_hook() -> None:
    play = Play(source="api", hang={"RunPostStartHook"}).wanting(a_pod(containers=[hooked()]))
    play.want(deleted(a_pod(containers=[hooked()]), 5))
    assert "InterruptCall RunPostStartHook" in play.log
    assert play.stops == [5] and "Warning FailedPostStartHook: PostStartHook failed" not in play.events


def test_a_stop_of_a_pod_runs_the_hooks_of_those_that_have_one() -> None:
    play = Play().wanting(a_pod(containers=[hooked(lifecycle=PRE), a_container("d")]))
    play.drop("u1")
    assert {stop.container: stop.pre_stop for stop in play.stopped} == {"c": True, "d": False}


def test_a_failed_probe_and_a_changed_image_run_the_hook_too() -> None:
    play = Play(images={"busybox:1", "busybox:2"})
    play.want(a_pod(containers=[hooked(lifecycle=PRE, livenessProbe={"exec": {}})]))
    play.probed("u1", liveness="failure")
    play.want(a_pod(containers=[hooked(lifecycle=PRE, image="busybox:2")]))
    assert [stop.pre_stop for stop in play.stopped] == [True, True]


def test_a_pod_known_only_from_the_runtime_has_no_hooks() -> None:
    play = Play().wanting(a_pod(containers=[hooked(lifecycle=PRE)]))
    play.wanted.clear()
    play.lose("u1")
    play.observe("u1")
    assert [(stop.pre_stop, stop.grace_seconds) for stop in play.stopped] == [(False, 2)]


def test_a_hook_for_which_no_time_is_left_is_not_run() -> None:
    play = Play(hang={"KillPod"}).wanting(a_pod(containers=[hooked(lifecycle=PRE)]))
    play.drop("u1")
    play.wall += 40
    play.restart()
    assert [(stop.pre_stop, stop.grace_seconds) for stop in play.stopped] == [(False, 2)]


def test_after_a_restart_of_podsync_the_hook_has_what_is_left_of_the_grace() -> None:
    play = Play(hang={"KillPod"}).wanting(a_pod(containers=[hooked(lifecycle=PRE)]))
    play.drop("u1")
    play.wall += 12
    play.restart()
    assert [(stop.pre_stop, stop.grace_seconds, stop.hook_spent) for stop in play.stopped] == [(True, 18, 12)]


def test_a_shorter_grace_ends_the_wait_for_a_hook_which_is_not_begun_again() -> None:
    play = Play(source="api", hang={"KillPod"})
    pod = a_pod(containers=[hooked(lifecycle=PRE)])
    play.want(pod)
    play.want(deleted(pod, 30))
    play.want(deleted(pod, 4))
    kills = [call for call in play.calls if isinstance(call, KillPod)]
    assert [(k.containers[0].grace_seconds, k.containers[0].hook_spent) for k in kills] == [(30, -1), (4, 0)]


def test_a_stop_that_is_interrupted_before_it_begins_leaves_the_hook_to_the_next_one() -> None:
    play = Play(source="api", hang={"KillPod"}, unbegun={"KillPod"})
    pod = a_pod(containers=[hooked(lifecycle=PRE)])
    play.want(pod)
    play.want(deleted(pod, 30))
    play.later(1)
    play.hang.add("KillPod")
    play.want(deleted(pod, 8))
    play.later(1)
    play.unbegun.clear()
    play.want(deleted(pod, 4))
    kills = [call.containers[0] for call in play.calls if isinstance(call, KillPod)]
    assert [(stop.grace_seconds, stop.hook_spent) for stop in kills] == [(30, -1), (7, -1), (2, 1)]


def test_a_container_whose_stop_is_interrupted_before_it_begins_has_its_hook_as_the_pod_ends() -> None:
    play = Play(source="api", hang={"KillContainer"}, unbegun={"KillContainer"})
    pod = a_pod(containers=[hooked(lifecycle=PRE, livenessProbe={"exec": {}})])
    play.want(pod)
    play.probed("u1", liveness="failure")
    play.want(deleted(pod, 5))
    assert [(stop.pre_stop, stop.hook_spent) for stop in play.stopped] == [(True, -1)]


def test_a_stop_without_effect_is_repeated_once_a_second_though_its_hook_was_begun() -> None:
    play = Play(deaf=True).wanting(a_pod(containers=[hooked(lifecycle=PRE, livenessProbe={"exec": {}})]))
    play.probed("u1", liveness="failure")
    play.later(10)
    assert len([call for call in play.calls if isinstance(call, KillContainer)]) == 10


def test_a_kill_that_failed_is_repeated_without_its_hook() -> None:
    play = Play(fail={"KillContainer": ("Unknown", "no")})
    play.want(a_pod(containers=[hooked(lifecycle=PRE, livenessProbe={"exec": {}})]))
    play.probed("u1", liveness="failure")
    play.later(3)
    kills = [call.stop.hook_spent for call in play.calls if isinstance(call, KillContainer)]
    assert kills == [-1, 1]


def test_a_pod_that_ends_while_one_of_its_containers_is_stopped_does_not_begin_the_hook_again() -> None:
    play = Play(source="api", hang={"KillContainer"})
    pod = a_pod(containers=[hooked(lifecycle=PRE, livenessProbe={"exec": {}})])
    play.want(pod)
    instance = play.containers["u1"][0].id
    play.probed("u1", liveness="failure")
    play.want(deleted(pod, 5))
    assert [(stop.container_id, stop.hook_spent) for stop in play.stopped] == [(instance, 0)]


def test_the_next_instance_has_its_own_hook() -> None:
    play = Play().wanting(a_pod(containers=[hooked(lifecycle=PRE, livenessProbe={"exec": {}})]))
    play.probed("u1", liveness="failure")
    play.drop("u1")
    assert [stop.hook_spent for stop in play.stopped] == [-1, -1]
    assert len({stop.container_id for stop in play.stopped}) == 2


@pytest.mark.parametrize("step", every_step(40))
def test_a_kill_at_any_step_begins_the_pre_stop_at_most_once(step: int) -> None:
    play = Play(only_urgent=True, listed=True, deaf=True).wanting(a_pod(containers=[hooked(lifecycle=PRE)]))
    play.kill_at = play.steps + step
    play.drop("u1")
    play.later(3)
    begun = [call for call in play.calls if isinstance(call, KillPod) and call.containers[0].hook_spent < 0]
    assert len(begun) <= 1 and any(isinstance(call, KillPod) for call in play.calls)


@pytest.mark.share(4)
@pytest.mark.parametrize("only_urgent", [False, True])
@pytest.mark.parametrize("step", every_step(69))
def test_a_kill_at_any_step_runs_every_hook_at_least_once(step: int, only_urgent: bool) -> None:
    play = Play(kill_at=step, only_urgent=only_urgent, listed=True)
    play.want(a_pod(initContainers=[hooked("s", restartPolicy="Always")], containers=[hooked()]))
    play.later(2)
    assert sorted(play.running("u1")) == [("c", 0), ("s", 0)]
    assert set(play.hooks) == {c.id for c in play.containers["u1"]}
    assert len(play.hooks) <= 3 and len(play.made) == 2
    assert play.disk["u1"]["hook_owed"] == {}


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(69))
def test_a_kill_at_any_step_after_a_failed_hook_leaves_no_such_container_running(step: int) -> None:
    play = Play(kill_at=step, only_urgent=True, fail_always=FAILED)
    play.want(a_pod(containers=[hooked()], restartPolicy="Never"))
    play.later(5)
    assert play.running("u1") == [] and play.made == [("u1", "c", 0)]
