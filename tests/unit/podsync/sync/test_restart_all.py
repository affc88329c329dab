"""RestartAllContainers on the core alone: everything goes, the logs stay, then the pod starts over (pods.md 5.7)."""

from typing import Any

import pytest

from services.podsync.core.pod.instructions import KillPod, RemoveContainers
from shared.model.runtime import SandboxState
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step

RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]


def trigger(name: str = "c") -> Pod:
    return a_container(name, restartPolicy="Never", restartPolicyRules=RULES)


def a_whole_pod(**spec: Any) -> Pod:
    sidecar = a_container("s", restartPolicy="Always", lifecycle={"preStop": {"exec": {}}})
    init = [a_container("i"), sidecar]
    return a_pod(initContainers=init, containers=[trigger(), a_container("d")], restartPolicy="Never", **spec)


def running_pod(**further: Any) -> Play:
    play = Play(**further).wanting(a_whole_pod())
    play.exit("u1", 0, "i")
    assert sorted(play.running("u1")) == [("c", 0), ("d", 0), ("s", 0)]
    return play


def test_all_are_stopped_at_once_and_removed_the_one_that_asked_last() -> None:
    play = running_pod()
    play.log.clear()
    play.exit("u1", 88)
    assert play.log[:2] == ["KillPod", "RemoveContainers"]
    kill = next(call for call in reversed(play.calls) if isinstance(call, KillPod))
    assert {(stop.container, stop.grace_seconds, stop.pre_stop, stop.after) for stop in kill.containers} == {
        ("d", 2, False, ()),
        ("s", 2, False, ()),
    }
    assert kill.sandboxes == (), "sandbox and address stay"
    removed = next(call for call in play.calls if isinstance(call, RemoveContainers))
    assert [name for _, name, _ in removed.containers] == ["d", "i", "s", "c"]
    assert removed.keep_logs
    assert "Normal Killing: killing" in play.events


def test_the_pod_starts_over_from_its_first_init_container_in_the_same_sandbox() -> None:
    play = running_pod()
    play.exit("u1", 88)
    assert play.running("u1") == [("i", 1)]
    play.exit("u1", 0, "i")
    assert sorted(play.running("u1")) == [("c", 1), ("d", 1), ("s", 1)]
    assert [(s.attempt, s.state) for s in play.sandboxes["u1"]] == [(0, SandboxState.READY)]
    assert not play.core.tracked["u1"].saved.restarting_all


def test_every_container_counts_a_restart() -> None:
    play = running_pod()
    play.exit("u1", 88)
    play.exit("u1", 0, "i")
    status = play.statuses["u1"].status
    every = [*status["initContainerStatuses"], *status["containerStatuses"]]
    assert {s["name"]: s["restartCount"] for s in every} == {"i": 1, "s": 1, "c": 1, "d": 1}


def test_an_init_container_may_ask_for_it() -> None:
    play = Play()
    first = a_container("h")
    play.want(a_pod(initContainers=[first, trigger("i")], restartPolicy="Never"))
    play.exit("u1", 0, "h")
    play.exit("u1", 88, "i")
    assert play.running("u1") == [("h", 1)]
    removed = next(call for call in play.calls if isinstance(call, RemoveContainers))
    assert [name for _, name, _ in removed.containers] == ["h", "i"]


def test_other_exit_codes_do_nothing_of_the_kind() -> None:
    play = running_pod()
    play.exit("u1", 87)
    assert sorted(play.running("u1")) == [("d", 0), ("s", 0)]
    assert "RemoveContainers" not in play.log


def test_it_can_happen_again() -> None:
    play = running_pod()
    for attempt in (1, 2, 3):
        play.exit("u1", 88)
        play.exit("u1", 0, "i")
        assert sorted(play.running("u1")) == [("c", attempt), ("d", attempt), ("s", attempt)]


def test_an_ephemeral_container_is_left_alone() -> None:
    play = Play().wanting(a_pod(containers=[trigger()], ephemeralContainers=[a_container("e")], restartPolicy="Never"))
    play.exit("u1", 88)
    assert sorted(play.running("u1")) == [("c", 1), ("e", 0)]


def test_a_container_that_is_not_removed_is_tried_again_and_nothing_starts_before() -> None:
    play = running_pod(fail={"RemoveContainers": ("Unknown", "device busy")})
    play.exit("u1", 88)
    assert play.running("u1") == []
    play.later(3)
    assert play.running("u1") == [("i", 1)]


def test_a_pod_that_is_deleted_meanwhile_ends() -> None:
    play = running_pod(hang={"RemoveContainers"})
    play.exit("u1", 88)
    assert play.core.tracked["u1"].saved.restarting_all
    play.start()
    play.drop("u1")
    play.later(70)
    assert play.running("u1") == [] and play.disk == {}


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("only_urgent", [False, True])
@pytest.mark.parametrize("step", every_step(89))
def test_a_kill_at_any_step_changes_nothing_in_the_end(step: int, only_urgent: bool) -> None:
    play = running_pod(only_urgent=only_urgent)
    play.kill_at, play.steps = step, 0
    play.exit("u1", 88)
    play.later(2)
    play.exit("u1", 0, "i")
    play.later(2)
    assert sorted(play.running("u1")) == [("c", 1), ("d", 1), ("s", 1)]
    assert sorted(play.made) == sorted([("u1", name, attempt) for name in "iscd" for attempt in (0, 1)])
    assert not play.disk["u1"]["restarting_all"]
