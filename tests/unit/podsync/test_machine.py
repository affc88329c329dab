"""What podsync does with pods, tests of the core alone: no runtime, no clock, no disk."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.core.pod.events import (
    PodDesired,
    PodObserved,
    PodUndesired,
    RuntimeChanged,
    SourcesFreshness,
    VolumesChanged,
    VolumesFreshness,
)
from services.podsync.core.pod.instructions import KillPod, SavePod
from services.podsync.core.pod.lifecycle import IllegalEdgeError, moved
from services.podsync.core.pod.saved import Saved
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from tests.unit.podsync.play import Play, a_pod, every_step


def status_of(play: Play, uid: str = "u1") -> dict[str, Any]:
    return play.statuses[uid].status


def test_a_desired_pod_is_brought_to_run_step_by_step() -> None:
    play = Play().wanting(a_pod())
    assert play.log == ["LookAtPod", "PreparePod", "RunPodSandbox", "InspectImage", "CreateContainer", "StartContainer"]
    assert status_of(play)["phase"] == "Running"
    assert status_of(play)["podIP"] == "10.0.0.9"
    assert [c["ready"] for c in status_of(play)["containerStatuses"]] == [True]
    assert [e.split(":")[0] for e in play.events] == ["Normal Pulled", "Normal Created", "Normal Started"]


def test_an_absent_image_is_pulled_with_events() -> None:
    play = Play(images=set()).wanting(a_pod())
    assert play.log[3:] == ["InspectImage", "PullImage", "CreateContainer", "StartContainer"]
    assert play.events[0] == 'Normal Pulling: Pulling image "busybox:1"'


def test_a_failed_pull_waits_ten_seconds_and_shows_why() -> None:
    play = Play(images=set(), fail={"PullImage": ("NotFound", "no such image")}).wanting(a_pod())
    waiting = status_of(play)["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "ErrImagePull", "message": "rpc error: code = NotFound desc = no such image"}
    play.later(5.1)
    waiting = status_of(play)["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "ImagePullBackOff"
    assert waiting["message"] == (
        'Back-off pulling image "busybox:1": ErrImagePull: rpc error: code = NotFound desc = no such image'
    )
    play.later(4.7)
    assert play.log.count("PullImage") == 1
    play.later(0.2)
    assert play.running("u1") == [("c", 0)]


def test_the_first_restart_is_immediate_and_the_next_ones_wait_twice_as_long_each_time() -> None:
    play = Play().wanting(a_pod())
    play.exit("u1", 1)
    assert play.running("u1") == [("c", 1)]
    for attempt, seconds in ((2, 10), (3, 20), (4, 40)):
        play.exit("u1", 1)
        waiting = status_of(play)["containerStatuses"][0]["state"]["waiting"]
        assert waiting["reason"] == "CrashLoopBackOff"
        assert waiting["message"] == f"back-off {seconds}s restarting failed container=c pod=web_default(u1)"
        play.later(seconds - 0.5)
        assert play.running("u1") == []
        play.later(1.0)
        assert play.running("u1") == [("c", attempt)]
    assert status_of(play)["containerStatuses"][0]["restartCount"] == 4


def test_back_off_survives_a_restart_of_podsync() -> None:
    play = Play().wanting(a_pod())
    play.exit("u1", 1)
    play.exit("u1", 1)
    play.restart()
    play.later(9.0)
    assert play.running("u1") == []
    play.later(1.5)
    assert play.running("u1") == [("c", 2)]


def test_only_the_newest_dead_instance_is_kept() -> None:
    play = Play().wanting(a_pod())
    play.exit("u1", 1)
    play.exit("u1", 1)
    assert [c.attempt for c in play.containers["u1"]] == [1]


def test_a_pod_with_restart_policy_never_that_exits_zero_has_succeeded_and_keeps_its_container() -> None:
    play = Play().wanting(a_pod(restartPolicy="Never"))
    play.exit("u1", 0)
    assert status_of(play)["phase"] == "Succeeded"
    assert play.published["u1"].admitted.state is PodState.FINISHED
    assert len(play.containers["u1"]) == 1
    assert play.sandboxes["u1"][0].state is SandboxState.NOTREADY


def test_a_failed_pod_stays_failed_after_a_restart_though_its_containers_are_gone() -> None:
    play = Play().wanting(a_pod(restartPolicy="Never"))
    play.exit("u1", 7)
    play.containers.clear()
    play.sandboxes.clear()
    play.restart()
    assert status_of(play)["phase"] == "Failed"
    assert play.running("u1") == []


def test_a_dropped_pod_is_stopped_with_its_grace_and_everything_of_it_goes() -> None:
    play = Play().wanting(a_pod())
    play.log.clear()
    play.drop("u1")
    assert play.stops == [30]
    assert play.log == ["KillPod", "ReleasePod", "RemoveContainers"]
    play.later(61)
    assert play.log[3:] == ["RemoveSandboxes", "RemovePodLogs"]
    assert play.disk == {} and play.published == {} and play.statuses == {}


def test_a_restart_in_the_middle_of_the_grace_goes_on_with_what_is_left() -> None:
    play = Play().wanting(a_pod())
    play.handle(PodUndesired(uid="u1"))
    del play.wanted["u1"]
    save = play.queue.pop(0)
    assert isinstance(save, SavePod)
    play.disk["u1"] = save.record  # killed here: saved, and nothing else done
    play.wall += 12
    play.restart()
    assert play.stops == [18]


def test_volumes_hold_the_start_back_and_are_released_before_the_pod_is_finished() -> None:
    play = Play()
    pod = a_pod(volumes=[{"name": "v", "emptyDir": {}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    play.want(pod)
    assert play.log == ["LookAtPod", "PreparePod"]
    assert play.published["u1"].volumes.volumes == ("v",)
    mounted = MountedVolumes(uid="u1", volumes={"v": MountedVolume(state=VolumeState.MOUNTED, host_path="/x")})
    play.happen(VolumesChanged(uid="u1", volumes=mounted))
    assert play.running("u1") == [("c", 0)]
    play.drop("u1")
    held = play.published["u1"].volumes
    assert (held.state, held.volumes) == (PodState.TERMINATED, ())
    play.happen(VolumesChanged(uid="u1", volumes=None))
    play.happen(VolumesFreshness(complete=True, stale=False))
    assert play.published["u1"].admitted.state is PodState.FINISHED


def test_an_undesired_pod_in_the_runtime_is_killed_but_not_before_the_sources_are_complete() -> None:
    play = Play()
    play.handle(SourcesFreshness(complete=False, stale=False))
    play.sandboxes["o"] = [Sandbox(id="s", attempt=0, state=SandboxState.READY, created_at=1)]
    play.containers["o"] = [
        Container(id="x", name="c", attempt=0, sandbox_id="s", state=ContainerState.RUNNING, created_at=1)
    ]
    play.observe("o")
    assert play.log == []
    play.happen(SourcesFreshness(complete=True, stale=False))
    assert play.running("o") == []
    assert play.stops == [2]


def test_stale_sources_take_nothing_away() -> None:
    play = Play().wanting(a_pod())
    play.happen(SourcesFreshness(complete=True, stale=True, listed=frozenset()))
    assert play.running("u1") == [("c", 0)]


def test_an_observation_begun_before_our_last_call_ended_is_ignored() -> None:
    play = Play().wanting(a_pod())
    old = RuntimePod(uid="u1", name="web", namespace="default", observed_at=play.wall - 5)
    play.happen(PodObserved(observation=old))
    assert play.made == [("u1", "c", 0)]


def test_a_dead_sandbox_is_replaced_under_the_next_attempt() -> None:
    play = Play().wanting(a_pod())
    play.sandboxes["u1"][0] = replace(play.sandboxes["u1"][0], state=SandboxState.NOTREADY)
    play.exit("u1", 137)
    assert [s.attempt for s in play.sandboxes["u1"] if s.state is SandboxState.READY] == [1]
    assert play.running("u1") == [("c", 1)]
    assert "Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created." in play.events


def test_a_container_that_cannot_be_stopped_keeps_its_changed_sandbox_for_some_tries_only() -> None:
    play = Play(fail_always={"KillPod": ("DeadlineExceeded", "no answer")}).wanting(a_pod())
    play.sandboxes["u1"][0] = replace(play.sandboxes["u1"][0], state=SandboxState.NOTREADY)
    play.observe("u1")
    play.run()
    play.later(60.0)
    graces = [call.containers[0].grace_seconds for call in play.calls if isinstance(call, KillPod)]
    assert graces[:3] == [30, 30, 30] and graces[3:] and set(graces[3:]) == {2}


def test_a_changed_image_under_the_same_uid_restarts_the_container() -> None:
    play = Play(images={"busybox:1", "busybox:2"}).wanting(a_pod())
    changed = a_pod()
    changed["spec"]["containers"][0]["image"] = "busybox:2"
    play.want(changed)
    assert play.running("u1") == [("c", 1)]
    assert "Normal Killing: Container c definition changed, will be restarted" in play.events


def test_an_edited_static_pod_starts_only_when_the_one_before_has_ended() -> None:
    play = Play().wanting(a_pod("u1"))
    play.hang = {"KillPod"}
    play.drop("u1")
    play.want(a_pod("u2"))
    assert play.running("u1") == [("c", 0)] and play.running("u2") == []
    play.start()  # the kill was cut short
    play.run()
    assert play.running("u1") == [] and play.running("u2") == [("c", 0)]


def test_the_same_manifest_added_again_while_it_ends_starts_afresh() -> None:
    play = Play().wanting(a_pod())
    play.handle(PodUndesired(uid="u1"))
    play.happen(PodDesired(uid="u1", source="file", pod=a_pod()))
    assert play.stops == [30]
    assert play.made == [("u1", "c", 0), ("u1", "c", 0)]
    assert [(c.attempt, c.state) for c in play.containers["u1"]] == [(0, ContainerState.RUNNING)]


def test_a_network_that_is_not_ready_holds_pod_networks_back_but_not_host_networks() -> None:
    play = Play()
    play.handle(RuntimeChanged(reachable=True, network_ready=False, network_message="cni plugin not initialized"))
    play.want(a_pod())
    play.want(a_pod("u2", "host", hostNetwork=True))
    assert play.running("u1") == [] and play.running("u2") == [("c", 0)]
    assert "Warning NetworkNotReady: network is not ready: cni plugin not initialized" in play.events
    play.happen(RuntimeChanged(reachable=True, network_ready=True))
    assert play.running("u1") == [("c", 0)]


def test_what_this_agent_cannot_carry_out_is_refused_and_goes_when_it_is_dropped() -> None:
    play = Play().wanting(a_pod(os={"name": "windows"}))
    assert play.log == []
    assert status_of(play)["reason"] == "PodOSNotSupported"
    assert status_of(play)["message"].startswith("Pod was rejected: Failed to admit pod as the OS field")
    play.drop("u1")
    assert play.disk == {}


def test_no_edge_leads_back() -> None:
    tracked = TrackedPod(uid="u", name="n", namespace="d", saved=Saved(state=PodState.TERMINATED))
    with pytest.raises(IllegalEdgeError):
        moved(tracked, PodState.SYNC)


@pytest.mark.long
@pytest.mark.share(3)
@pytest.mark.parametrize("only_urgent", [False, True])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("step", every_step(59))
def test_a_kill_at_any_step_of_a_start_and_an_end_changes_nothing_in_the_end(
    step: int, listed: bool, only_urgent: bool
) -> None:
    play = Play(kill_at=step, listed=listed, only_urgent=only_urgent).wanting(a_pod())
    play.run()
    play.later(2)
    assert play.running("u1") == [("c", 0)]
    assert play.made == [("u1", "c", 0)]
    play.drop("u1")
    play.later(70)
    assert play.running("u1") == [] and play.disk == {}
    assert play.sandboxes["u1"] == [] and play.containers["u1"] == []


@pytest.mark.parametrize("only_urgent", [False, True])
def test_a_start_that_our_death_cut_short_is_no_attempt_and_one_that_failed_is(only_urgent: bool) -> None:
    play = Play(only_urgent=only_urgent, listed=True)
    play.handle(PodDesired(uid="u1", source="file", pod=a_pod()))
    while not play.containers.get("u1"):
        play._do(play.queue.pop(0))
    created = play.containers["u1"][0]
    play.containers["u1"][0] = replace(created, state=ContainerState.EXITED, finished_at=int(play.wall * 1e9))
    play.wanted["u1"] = a_pod()
    play.restart()
    assert play.running("u1") == [("c", 0)]

    failed = Play(only_urgent=only_urgent, listed=True, fail={"StartContainer": ("Unknown", "no such command")})
    failed.want(a_pod())
    running = failed.containers["u1"][0]
    failed.containers["u1"][0] = replace(running, state=ContainerState.EXITED, finished_at=int(failed.wall * 1e9))
    failed.start()
    failed.run()
    failed.later(30)
    assert failed.running("u1") == [("c", 1)]


def test_a_pod_new_to_the_node_is_not_listed_in_the_runtime_but_after_a_restart_it_is() -> None:
    play = Play(listed=True).wanting(a_pod())
    assert play.log[:2] == ["PreparePod", "RunPodSandbox"]
    play.later(90)
    assert play.log.count("LookAtPod") == 1  # in case an event was missed
    play.restart()
    assert play.log.count("LookAtPod") == 2


def test_a_back_off_ends_although_the_exit_was_dated_by_a_clock_that_was_set_back_since() -> None:
    play = Play().wanting(a_pod())
    play.exit("u1", 1)
    play.later(1)
    play.exit("u1", 1)
    assert play.running("u1") == []
    exited = play.containers["u1"]
    play.containers["u1"] = [replace(c, finished_at=c.finished_at + int(3600e9)) for c in exited]
    play.restart()
    play.later(30)
    assert play.running("u1") == [("c", 2)]


def test_a_pod_without_containers_makes_no_sandboxes_in_a_circle() -> None:
    play = Play().wanting(a_pod(containers=[]))
    play.later(200)
    assert len(play.sandboxes.get("u1", [])) <= 1


def test_a_new_pod_that_is_dropped_before_its_first_look_is_not_looked_at() -> None:
    play = Play(listed=True, runtime_reported=False).wanting(a_pod())
    play.drop("u1")
    assert [type(call).__name__ for call in play.calls] == ["ReleasePod", "RemovePodLogs"]
    assert not play.disk
