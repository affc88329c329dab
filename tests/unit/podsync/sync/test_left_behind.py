"""A start whose caller was killed leaves a task that CRI does not know of: its container can neither be started, nor
stopped, nor removed, until something stronger than CRI ends the task."""

from typing import Any

import pytest

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.core.pod.events import CallDone, CallFailed, VolumesChanged
from services.podsync.core.pod.instructions import Call, EndTasks, PublishAdmitted
from services.podsync.core.sync import left_behind
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState
from tests.unit.podsync.play import Play, Pod, a_container, a_pod

NEVER_RAN: dict[str, Any] = {"state": ContainerState.EXITED, "started_at": 0, "exit_code": 128, "reason": "StartError"}


def status_of(play: Play) -> dict[str, Any]:
    return play.statuses["u1"].status


def cut_off(pod: Pod, *, ends_tasks: bool = True, name: str = "c") -> Play:
    """podsync is killed in StartContainer of the container `name`; the runtime keeps a task of it."""
    play = Play(hang={"StartContainer"}, ends_tasks=ends_tasks).wanting(pod)
    (lost,) = [c for c in play.containers["u1"] if c.name == name]
    play.containers["u1"] = [replace(c, **NEVER_RAN) if c is lost else c for c in play.containers["u1"]]
    play.tasks_left.add(lost.id)
    play.log.clear()
    play.restart()
    return play


def test_the_task_is_ended_and_the_same_attempt_is_started_within_two_seconds() -> None:
    play = cut_off(a_pod())
    assert play.running("u1") == []
    play.later(2.0)
    assert play.running("u1") == [("c", 0)] and status_of(play)["containerStatuses"][0]["restartCount"] == 0
    assert play.log.count("EndTasks") == 1 and "KillPod" not in play.log
    assert len(play.sandboxes["u1"]) == 1
    (event,) = [event for event in play.events if "FailedSync" in event]
    assert "container c (c002) could not be removed, and its task was ended" in event and "running task" in event


def test_one_refusal_is_no_reason_to_end_anything() -> None:
    play = cut_off(a_pod())
    play.tasks_left.clear()
    play.later(2.0)
    assert play.running("u1") == [("c", 0)] and "EndTasks" not in play.log


@pytest.mark.parametrize(("between", "ends"), [("Unknown", False), ("DeadlineExceeded", True)])
def test_an_answer_between_two_refusals_begins_their_count_again_and_a_missing_answer_does_not(
    between: str, ends: bool
) -> None:
    play = cut_off(a_pod())
    assert play.log.count("RemoveContainers") == 1
    for _ in range(3):
        play.fail["RemoveContainers"] = (between, "device busy")
        while play.fail and "EndTasks" not in play.log:
            play.later(0.1)
        refused = play.log.count("RemoveContainers")
        while play.log.count("RemoveContainers") == refused and "EndTasks" not in play.log:
            play.later(0.1)
    assert ("EndTasks" in play.log) is ends


def test_other_errors_of_a_removal_end_no_task() -> None:
    play = cut_off(a_pod())
    play.tasks_left.clear()
    play.fail_always["RemoveContainers"] = ("Unknown", "device busy")
    play.later(300)
    assert "EndTasks" not in play.log


def test_where_nothing_ends_it_the_pod_goes_on_in_a_new_sandbox_beside_it() -> None:
    play = cut_off(a_pod(), ends_tasks=False)
    play.later(120)
    assert play.running("u1") == [("c", 1)]
    assert [s.attempt for s in play.look("u1").sandboxes] == [1, 0]
    (event,) = [event for event in play.events if "FailedSync" in event]
    assert "container c (c002) cannot be removed and was left behind" in event and "running task" in event
    play.log.clear()
    play.later(300)
    assert not {"RemoveContainers", "RemoveSandboxes", "EndTasks", "RunPodSandbox"} & set(play.log)


def test_a_task_that_does_not_end_in_time_is_left_behind_too() -> None:
    """The kernel cannot kill a process that waits for a device: the end of its task is never answered in time."""
    play = cut_off(a_pod(), ends_tasks=False)
    play.fail_always["EndTasks"] = ("DeadlineExceeded", "context deadline exceeded")
    play.later(300)
    assert play.running("u1") == [("c", 1)]


def test_a_runtime_that_is_away_is_no_reason_to_leave_anything_behind() -> None:
    play = cut_off(a_pod())
    play.fail_always["EndTasks"] = ("Unavailable", "connection refused")
    play.later(60)
    assert play.running("u1") == [] and len(play.sandboxes["u1"]) == 1
    play.fail_always.clear()
    play.later(30)
    assert play.running("u1") == [("c", 0)]


def test_a_restart_of_podsync_remembers_what_was_left_behind() -> None:
    play = cut_off(a_pod(), ends_tasks=False)
    play.later(120)
    before = len(play.events)
    play.log.clear()
    play.restart()
    play.later(120)
    assert play.running("u1") == [("c", 1)] and len(play.events) == before and "RemoveContainers" not in play.log


def test_a_pod_that_ends_tries_to_remove_what_it_has_left_behind() -> None:
    play = cut_off(a_pod(), ends_tasks=False)
    play.later(120)
    play.ends_tasks = True
    play.log.clear()
    play.drop("u1")
    play.later(120)
    assert play.log.index("EndTasks") < play.log.index("ReleasePod")
    assert play.containers["u1"] == [] and play.sandboxes["u1"] == [] and "u1" not in play.disk


def with_volume() -> Pod:
    mounts = [{"name": "data", "mountPath": "/data"}]
    return a_pod(containers=[a_container("c", volumeMounts=mounts)], volumes=[{"name": "data", "emptyDir": {}}])


def ends_in_order(play: Play) -> list[str]:
    """Drop the pod, and return its calls and the moment at which it gives up its volumes, in their order."""
    play.log.clear()
    perform, order = play._do, []

    def note(instruction: Any) -> None:
        if isinstance(instruction, PublishAdmitted) and not instruction.published.volumes.volumes:
            order.append("volumes are given up")
        elif isinstance(instruction, Call):
            order.append(type(instruction).__name__)
        perform(instruction)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(play, "_do", note)
        play.drop("u1")
        play.later(60)
    return [step for step in order if step not in ("LookAtPod", "RemoveContainers", "RemoveSandboxes")]


IN_ORDER = ["KillPod", "EndTasks", "volumes are given up"]  # the cgroup goes after the volumes are unmounted
MOUNTED = MountedVolumes(uid="u1", volumes={"data": MountedVolume(state=VolumeState.MOUNTED)})


def cut_off_with_volume(*, ends_tasks: bool = True) -> Play:
    play = Play(hang={"StartContainer"}, ends_tasks=ends_tasks).wanting(with_volume())
    play.happen(VolumesChanged(uid="u1", volumes=MOUNTED))
    (lost,) = play.containers["u1"]
    play.tasks_left.add(lost.id)
    return play


def interrupt(play: Play) -> None:
    """Start podsync again, after the runtime has undone the start."""
    play.containers["u1"] = [replace(c, **NEVER_RAN) for c in play.containers["u1"]]
    play.log.clear()
    play.start()
    play.happen(VolumesChanged(uid="u1", volumes=MOUNTED))


@pytest.mark.parametrize("ends_tasks", [True, False])
def test_the_task_of_a_pod_that_ends_is_ended_before_its_volumes_and_its_cgroup_go(ends_tasks: bool) -> None:
    play = cut_off_with_volume(ends_tasks=ends_tasks)
    interrupt(play)
    assert ends_in_order(play) == IN_ORDER
    assert bool(play.tasks_left) is not ends_tasks
    assert not [event for event in play.events if "could not be removed" in event]


def test_the_end_tries_again_what_failed_while_the_pod_ran() -> None:
    play = cut_off_with_volume()
    play.fail_always["EndTasks"] = ("Unknown", "ttrpc: closed")
    interrupt(play)
    play.later(2)
    assert "EndTasks" in play.log and play.tasks_left
    play.fail_always.clear()
    assert ends_in_order(play) == IN_ORDER and not play.tasks_left


@pytest.mark.parametrize("fails", [False, True])
def test_an_ending_that_is_under_way_when_the_pod_is_dropped_is_not_that_of_its_end(fails: bool) -> None:
    play = cut_off_with_volume()
    play.hang.add("EndTasks")
    interrupt(play)
    play.later(2)
    (call,) = [call for call in play.calls if isinstance(call, EndTasks)]
    play.drop("u1")
    over: dict[str, Any] = {"uid": "u1", "call": call, "completed_at": play.wall}
    no_answer: dict[str, Any] = {"code": "DeadlineExceeded", "text": "no answer", "description": "no answer"}
    play.handle(CallFailed(**over, **no_answer) if fails else CallDone(**over))
    play.log.clear()
    play.run()
    play.later(10)
    assert [step for step in play.log if step in ("KillPod", "EndTasks")] == ["KillPod", "EndTasks"]
    assert not play.tasks_left


def test_a_start_that_the_runtime_has_not_undone_yet_counts_as_interrupted() -> None:
    play = cut_off_with_volume()
    play.wanted.clear()
    play.start()
    play.wanted["u1"] = with_volume()  # no source has listed it again when it is dropped
    assert ends_in_order(play) == IN_ORDER and not play.tasks_left


@pytest.mark.parametrize(
    ("code", "seconds"), [("DeadlineExceeded", (0, 2)), ("Unavailable", (60, 300)), ("Canceled", (60, 600))]
)
def test_the_end_waits_for_an_answer_of_the_task_service_and_not_for_ever(code: str, seconds: tuple[int, int]) -> None:
    play = cut_off(a_pod())
    play.fail_always["EndTasks"] = (code, "")
    play.log.clear()
    began = play.wall
    play.drop("u1")
    while "ReleasePod" not in play.log:
        assert play.wall < began + 3600
        play.later(1)
    assert seconds[0] <= play.wall - began <= seconds[1]
    play.fail_always.clear()
    play.later(200)
    assert "u1" not in play.disk and not play.tasks_left


def test_what_else_runs_of_the_pod_goes_on() -> None:
    pod = a_pod(containers=[a_container("other"), a_container("c")])
    play = Play(ends_tasks=False).wanting(pod)
    other = next(c for c in play.containers["u1"] if c.name == "other")
    play.hang.add("StartContainer")
    play.exit("u1", 1)
    play.later(30)
    lost = next(c for c in play.containers["u1"] if c.state is ContainerState.CREATED)
    play.containers["u1"] = [replace(c, **NEVER_RAN) if c is lost else c for c in play.containers["u1"]]
    play.tasks_left.add(lost.id)
    play.restart()
    play.later(300)
    assert sorted(play.running("u1")) == [("c", lost.attempt + 1), ("other", 0)]
    assert play.stopped == [] and other.id in {c.id for c in play.containers["u1"]}
    assert len(play.sandboxes["u1"]) == 1


def test_a_pod_that_never_restarts_is_not_ended_for_a_start_that_was_lost() -> None:
    play = cut_off(a_pod(restartPolicy="Never"), ends_tasks=False)
    play.later(120)
    assert play.running("u1") == [("c", 1)] and status_of(play)["phase"] == "Running"


def test_what_is_left_behind_is_bounded() -> None:
    play = cut_off(a_pod(), ends_tasks=False)
    for _ in range(12):
        play.later(200)
        play.containers["u1"] = [replace(c, **NEVER_RAN) for c in play.containers["u1"]]
        play.tasks_left |= {c.id for c in play.containers["u1"]}
        record = play.disk["u1"]
        record["starting"] = {"c": max(play.containers["u1"], key=lambda c: c.created_at).id}
        play.restart()
    assert len(play.core.tracked["u1"].saved.left_behind) <= 5


@pytest.mark.long
def test_what_the_runtime_has_removed_since_does_not_count() -> None:
    play = cut_off(a_pod(), ends_tasks=False)
    for _ in range(8):
        play.later(200)
        (runs,) = [c for c in play.containers["u1"] if c.state is ContainerState.RUNNING]
        play.containers["u1"] = [replace(runs, **NEVER_RAN)]  # the ones before have ended at last
        play.tasks_left = {runs.id}
        play.disk["u1"]["starting"] = {"c": runs.id}
        play.restart()
    play.later(200)
    assert len(play.running("u1")) == 1 and len(play.core.tracked["u1"].saved.left_behind) <= 2


def test_a_pod_that_may_leave_no_more_behind_reports_once_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_behind, "MAX_LEFT_BEHIND", 0)
    play = cut_off(a_pod(), ends_tasks=False)
    play.later(900)
    assert play.running("u1") == []
    (event,) = [event for event in play.events if "FailedSync" in event]
    assert "container c (c002) cannot be removed, and nothing ends its task: " in event
    waits_for = play.core.tracked["u1"].waits_for
    assert waits_for.startswith("the runtime to remove containers: ") and "running task" in waits_for
    play.tasks_left.clear()
    play.later(60)
    assert play.running("u1") == [("c", 0)]


@pytest.mark.long
@pytest.mark.share(2)
@pytest.mark.parametrize("ends_tasks", [True, False])
def test_a_kill_at_any_step_of_the_healing_changes_nothing_in_the_end(ends_tasks: bool) -> None:
    for step in range(1, 200):
        play = cut_off(a_pod(), ends_tasks=ends_tasks)
        play.steps, play.kill_at = 0, step
        play.later(400)
        reached = play.steps >= step
        assert [name for name, _ in play.running("u1")] == ["c"], f"killed at step {step}"
        assert len(play.core.tracked["u1"].saved.left_behind) == (0 if ends_tasks else 1)
        if not reached:
            break
    else:
        pytest.fail("the play has no end")
    assert any(isinstance(call, EndTasks) for call in play.calls)
