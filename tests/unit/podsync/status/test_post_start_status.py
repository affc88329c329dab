"""What the status shows of a container while its postStart hook runs: what it showed before the start (pods.md 5.5)."""

from typing import Any

import pytest

from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step

POST = {"postStart": {"exec": {"command": ["true"]}}}
FAILED = {"RunPostStartHook": ("", "Exec lifecycle hook ([false]) failed")}


def hooked(name: str = "c", **fields: Any) -> Pod:
    return a_container(name, lifecycle=POST, **fields)


def shown(play: Play, name: str = "c", field: str = "containerStatuses") -> dict[str, Any]:
    status = play.statuses["u1"].status
    return next(entry for entry in status[field] if entry["name"] == name)


def test_a_container_waits_and_has_no_id_while_its_hook_runs() -> None:
    play = Play(hang={"RunPostStartHook"}).wanting(a_pod(containers=[hooked()]))
    found = shown(play)
    assert found["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert "containerID" not in found and (found["started"], found["ready"]) == (False, False)
    assert play.statuses["u1"].status["phase"] == "Pending"


def test_the_running_instance_is_named_to_the_prober_so_that_its_exit_is_seen() -> None:
    play = Play(hang={"RunPostStartHook"}).wanting(a_pod(containers=[hooked()]))
    assert play.statuses["u1"].container_ids == (play.containers["u1"][0].id,)


def test_it_runs_once_the_hook_has_ended() -> None:
    play = Play().wanting(a_pod(containers=[hooked()]))
    found = shown(play)
    assert "running" in found["state"] and found["containerID"].endswith(play.containers["u1"][0].id)
    assert play.statuses["u1"].status["phase"] == "Running"


def test_a_sidecar_is_shown_as_initializing() -> None:
    play = Play(hang={"RunPostStartHook"}).wanting(a_pod(initContainers=[hooked("s", restartPolicy="Always")]))
    found = shown(play, "s", "initContainerStatuses")
    assert found["state"] == {"waiting": {"reason": "PodInitializing"}} and not found["started"]


def test_another_container_of_the_pod_is_shown_as_it_is() -> None:
    play = Play(hang={"RunPostStartHook"}).wanting(a_pod(containers=[a_container("a"), hooked("b")]))
    assert "running" in shown(play, "a")["state"]
    assert "waiting" in shown(play, "b")["state"]


def test_the_next_attempt_is_shown_with_its_count_and_the_last_state_once_its_hook_has_ended() -> None:
    play = Play().wanting(a_pod(containers=[hooked()]))
    first = play.containers["u1"][0].id
    play.hang = {"RunPostStartHook"}
    play.exit("u1", 3)
    found = shown(play)
    assert play.running("u1") == [("c", 1)]
    assert found["state"]["terminated"]["exitCode"] == 3 and found["containerID"].endswith(first)
    assert (found["restartCount"], play.statuses["u1"].status["phase"]) == (0, "Running")
    play.start()  # the hook is run again, and ends
    play.run()
    found = shown(play)
    assert "running" in found["state"] and found["restartCount"] == 1
    assert found["lastState"]["terminated"]["exitCode"] == 3


def test_a_back_off_is_shown_until_the_hook_of_the_next_attempt_has_ended() -> None:
    play = Play().wanting(a_pod(containers=[hooked()]))
    for _ in range(2):
        play.exit("u1", 1)
    before = shown(play)
    assert before["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    play.hang = {"RunPostStartHook"}
    play.later(15)
    assert play.running("u1") == [("c", 2)]
    assert shown(play) == before


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_container_replaced_for_its_image_does_not_end_the_pod_while_the_hook_runs(policy: str) -> None:
    play = Play(images={"busybox:1", "busybox:2"}).wanting(a_pod(containers=[hooked()], restartPolicy=policy))
    play.hang = {"RunPostStartHook"}
    play.want(a_pod(containers=[hooked(image="busybox:2")], restartPolicy=policy))
    assert play.running("u1") == [("c", 1)]
    found = shown(play)
    assert "waiting" in found["state"] and "terminated" in found["lastState"]
    assert play.statuses["u1"].status["phase"] == "Running"
    play.restart()
    assert "running" in shown(play)["state"]


def test_a_container_that_ends_during_its_hook_is_shown_as_ended() -> None:
    play = Play(hang={"RunPostStartHook"}).wanting(a_pod(containers=[hooked()]))
    play.exit("u1", 7)
    assert shown(play)["state"]["terminated"]["exitCode"] == 7


def test_a_container_that_is_stopped_for_its_hook_waits_and_then_shows_why() -> None:
    play = Play(fail=dict(FAILED), hang={"KillContainer"}).wanting(a_pod(containers=[hooked()], restartPolicy="Never"))
    assert shown(play)["state"] == {"waiting": {"reason": "ContainerCreating"}}
    play.restart()
    assert "terminated" in shown(play)["state"]


def test_a_pod_that_ends_shows_what_runs() -> None:
    play = Play(source="api", hang={"RunPostStartHook", "KillPod"})
    pod = a_pod(containers=[hooked()])
    play.want(pod)
    given = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}
    play.want(pod | {"metadata": pod["metadata"] | given})
    assert "running" in shown(play)["state"]


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(40))
def test_a_kill_at_any_step_never_shows_a_container_whose_hook_has_not_ended(step: int) -> None:
    play = Play(kill_at=step, fail_always={"RunPostStartHook": ("Unavailable", "away")})
    play.want(a_pod(containers=[hooked()], restartPolicy="Never"))
    assert not any("running" in entry["state"] for entry in play.statuses["u1"].status["containerStatuses"])
    assert play.running("u1") == []
