"""Faults around podsync, tests of the core alone: lost records, late events, cancelled calls, a runtime that hangs."""

from typing import Any

import pytest

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.core.pod.events import CallFailed, PodObserved, VolumesChanged
from services.podsync.core.pod.instructions import WakeAt
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState
from tests.unit.podsync.play import Play, a_pod


def status_of(play: Play, uid: str = "u1") -> dict[str, Any]:
    return play.statuses[uid].status


def test_a_start_cut_short_by_our_own_death_is_not_an_attempt() -> None:
    play = Play().wanting(a_pod())
    cut = replace(
        play.containers["u1"][0],
        state=ContainerState.EXITED,
        started_at=0,
        exit_code=128,
        reason="StartError",
        message="failed to create containerd task: failed to start shim: start failed: : signal: killed: unknown",
    )
    play.containers["u1"] = [cut]
    play.disk["u1"]["status"]["containerStatuses"][0]["state"] = {"waiting": {}}
    play.disk["u1"]["starting"] = {"c": cut.id}
    play.log_attempts = {"c": 0}
    play.restart()
    assert play.running("u1") == [("c", 0)]
    shown = status_of(play)["containerStatuses"][0]
    assert shown["restartCount"] == 0


def test_a_name_that_is_reserved_means_look_again_and_never_the_next_attempt() -> None:
    reserved = ("Unknown", 'failed to reserve container name "c_web_default_u1_0": name is reserved for "abc"')
    play = Play(fail={"CreateContainer": reserved}).wanting(a_pod())
    assert play.running("u1") == []
    play.later(0.3)
    assert play.made == [("u1", "c", 0)]
    assert play.log.count("LookAtPod") == 2


def mounted(*names: str) -> MountedVolumes:
    volumes = {name: MountedVolume(state=VolumeState.MOUNTED, host_path=f"/{name}") for name in names}
    return MountedVolumes(uid="u1", volumes=volumes)


def a_pod_with_a_volume() -> dict[str, Any]:
    pod = a_pod(volumes=[{"name": "v", "emptyDir": {}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return pod


def test_news_of_volumes_that_comes_before_the_pod_is_kept_for_it() -> None:
    play = Play()
    play.handle(VolumesChanged(uid="u1", volumes=mounted("v")))
    play.want(a_pod_with_a_volume())
    assert play.running("u1") == [("c", 0)]


def test_a_record_of_another_version_is_read_as_far_as_it_goes() -> None:
    play = Play().wanting(a_pod())
    del play.disk["u1"]["image_backoff"]
    play.disk["u1"] |= {"something_new": [1], "crash_backoff": {"c": 1}, "pre_stops": {"c1": {"begun": 1.0}}}
    play.restart()
    assert play.core.node_state.unreadable == {}
    assert play.made == [("u1", "c", 0)]


@pytest.mark.parametrize("broken", [{"state": "gone"}, {"attempts": [1]}, {"uid": None}])
def test_an_unusable_record_is_reported_and_its_running_pod_is_adopted(broken: dict[str, Any]) -> None:
    play = Play().wanting(a_pod())
    play.disk["u1"] |= broken
    play.start()
    assert list(play.core.node_state.unreadable) == ["u1"]
    play.run()
    assert play.made == [("u1", "c", 0)] and play.running("u1") == [("c", 0)]


def test_a_lost_record_costs_the_running_pod_nothing() -> None:
    play = Play().wanting(a_pod())
    play.lose("u1")
    assert play.made == [("u1", "c", 0)] and play.running("u1") == [("c", 0)]
    assert status_of(play)["phase"] == "Running"


def test_a_start_that_is_still_being_undone_is_waited_for_and_then_repeated_with_the_same_attempt() -> None:
    busy = ("Unknown", 'failed to set starting state for container "c003": container is already in starting state')
    play = Play(fail={"StartContainer": busy}).wanting(a_pod())
    assert not [event for event in play.events if "starting state" in event]
    (container,) = play.containers["u1"]
    undone = replace(container, state=ContainerState.EXITED, exit_code=128, reason="StartError", message="killed")
    play.containers["u1"] = [undone]
    play.observe("u1")
    assert play.made == [("u1", "c", 0), ("u1", "c", 0)]
    assert play.running("u1") == [("c", 0)]


def test_a_start_whose_task_a_killed_runtime_left_behind_is_repeated_with_the_same_attempt() -> None:
    left = ("AlreadyExists", "failed to create containerd task: task c003: already exists")
    play = Play(fail={"StartContainer": left}).wanting(a_pod())
    assert not [event for event in play.events if "already exists" in event]
    (container,) = play.containers["u1"]
    play.containers["u1"] = [replace(container, state=ContainerState.EXITED, exit_code=128, reason="StartError")]
    play.observe("u1")
    assert play.made == [("u1", "c", 0), ("u1", "c", 0)]
    assert status_of(play)["containerStatuses"][0]["restartCount"] == 0


def test_a_command_that_cannot_be_run_is_a_failed_attempt() -> None:
    play = Play(fail={"StartContainer": ("Unknown", "runc create failed: no such file or directory")}).wanting(a_pod())
    (container,) = play.containers["u1"]
    play.containers["u1"] = [replace(container, state=ContainerState.EXITED, exit_code=128, finished_at=1)]
    play.observe("u1")
    assert play.running("u1") == [("c", 1)]


def test_a_start_the_runtime_refuses_is_tried_again_after_a_while_and_not_in_a_circle() -> None:
    play = Play(fail={"StartContainer": ("FailedPrecondition", "not in a state to be started")}).wanting(a_pod())
    assert play.log.count("StartContainer") == 1
    assert status_of(play)["containerStatuses"][0]["state"]["waiting"]["reason"] == "RunContainerError"
    play.later(2.0)
    assert play.running("u1") == [("c", 0)] and play.made == [("u1", "c", 0)]


def test_a_look_older_than_the_last_observation_is_ignored() -> None:
    play = Play().wanting(a_pod())
    before = play.look("u1")
    exited = replace(before.containers[0], state=ContainerState.EXITED, exit_code=1, finished_at=int(play.wall * 1e9))
    tracked = play.core.tracked["u1"]
    later = replace(before, containers=(exited,), observed_at=play.wall + 2)
    tracked = tracked.with_observation(later, later.observed_at)
    tracked = tracked.with_observation(replace(before, observed_at=play.wall + 1), play.wall + 1)
    assert tracked.instances[0].state is ContainerState.EXITED


def test_a_termination_message_stays_when_its_file_is_gone() -> None:
    play = Play().wanting(a_pod(restartPolicy="Never"))
    with_messages = [replace(c, termination_message="result=42") for c in play.containers["u1"]]
    play.containers["u1"] = with_messages
    play.exit("u1", 0)
    play.containers["u1"] = [replace(c, termination_message="") for c in play.containers["u1"]]
    play.observe("u1")
    assert status_of(play)["containerStatuses"][0]["state"]["terminated"]["message"] == "result=42"


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_changed_image_is_run_whatever_the_restart_policy(policy: str) -> None:
    play = Play(images={"busybox:1", "busybox:2"}).wanting(a_pod(restartPolicy=policy))
    changed = a_pod(restartPolicy=policy)
    changed["spec"]["containers"][0]["image"] = "busybox:2"
    play.want(changed)
    assert play.running("u1") == [("c", 1)]
    assert status_of(play)["phase"] == "Running"
    play.exit("u1", 0)
    assert status_of(play)["phase"] == "Succeeded"


def test_a_pod_without_events_is_listed_at_intervals() -> None:
    play = Play().wanting(a_pod())
    (container,) = play.containers["u1"]
    play.containers["u1"] = [replace(container, state=ContainerState.EXITED, exit_code=1, finished_at=1)]
    play.later(100)
    assert play.running("u1") == [("c", 1)]


def test_a_pod_that_the_runtime_lost_is_started_again_once_it_is_observed_without_containers() -> None:
    play = Play().wanting(a_pod())
    assert play.running("u1") == [("c", 0)]
    play.containers["u1"], play.sandboxes["u1"] = [], []
    play.wall += 1
    play.happen(PodObserved(observation=play.look("u1")))
    play.later(100)
    assert play.running("u1") == [("c", 1)]


def test_an_observation_from_before_the_removal_brings_no_forgotten_pod_back() -> None:
    play = Play().wanting(a_pod())
    old = play.look("u1")
    play.drop("u1")
    play.later(61)
    assert play.disk == {}
    play.happen(PodObserved(observation=old))
    assert play.published == {}


def test_a_removal_that_fails_does_not_hold_a_restart_up() -> None:
    play = Play().wanting(a_pod())
    play.exit("u1", 1)
    play.fail["RemoveContainers"] = ("Internal", "device busy")
    play.exit("u1", 1)
    assert play.log[-2:] == ["RemoveContainers", "LookAtPod"]
    assert play.core.tracked["u1"].retry.at == 0.0
    play.later(10.5)
    assert play.running("u1") == [("c", 2)]


def test_a_stop_without_effect_is_not_repeated_in_a_circle() -> None:
    play = Play().wanting(a_pod())
    play.deaf = True
    play.drop("u1")
    assert play.log.count("KillPod") == 1
    play.deaf = False
    play.later(3)
    assert play.running("u1") == [] and play.log.count("KillPod") == 2


def test_a_name_that_stays_reserved_becomes_an_ordinary_failure() -> None:
    reserved = ("Unknown", 'failed to reserve container name "c": name "c" is reserved for "abc"')
    play = Play(fail_always={"CreateContainer": reserved}).wanting(a_pod())
    play.later(60)
    assert play.log.count("CreateContainer") < 30
    assert status_of(play)["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerError"


def test_a_call_that_fails_after_minutes_wakes_podsync_when_it_is_tried_again_and_not_before() -> None:
    play = Play(hang={"RunPodSandbox"}).wanting(a_pod())
    play.later(240)  # longer than until the next look at the pod is due
    call = play.calls[-1]
    failed = CallFailed(uid="u1", call=call, completed_at=play.wall, code="DeadlineExceeded", text="", description="")
    asked = [one for one in play.core.handle(failed, play.wall) if isinstance(one, WakeAt)]
    assert asked and min(one.when for one in asked) == play.core.tracked["u1"].retry.at > play.wall
