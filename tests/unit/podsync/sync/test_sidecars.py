"""Sidecars on the core alone: the gate before the next container, restarts, who ends last (pods.md 5.3, 5.4, 8.3)."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.instructions import KillPod
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step

SLEEP = {"preStop": {"exec": {"command": ["sleep", "1"]}}}


def sidecar(name: str, **fields: Any) -> Pod:
    return a_container(name, restartPolicy="Always", **fields)


def with_sidecars(*containers: Pod, **spec: Any) -> Pod:
    return a_pod(initContainers=list(containers), **spec)


def stops(play: Play) -> dict[str, tuple[str, ...]]:
    """Of the newest KillPod: container -> names of those it waits for."""
    call = next(call for call in reversed(play.calls) if isinstance(call, KillPod))
    names = {stop.container_id: stop.container for stop in call.containers}
    return {stop.container: tuple(names[one] for one in stop.after) for stop in call.containers}


def test_one_without_a_startup_probe_lets_the_next_start_as_soon_as_it_runs() -> None:
    play = Play().wanting(with_sidecars(sidecar("s"), a_container("a")))
    assert play.running("u1") == [("s", 0), ("a", 0)]
    play.exit("u1", 0, "a")
    assert play.running("u1") == [("s", 0), ("c", 0)]


def test_one_with_a_startup_probe_holds_the_next_back_until_that_succeeds() -> None:
    play = Play().wanting(with_sidecars(sidecar("s", startupProbe={"exec": {}}), a_container("a")))
    assert play.running("u1") == [("s", 0)]
    play.probed("u1", "s", startup="success")
    assert play.running("u1") == [("s", 0), ("a", 0)]


def test_the_last_one_with_a_startup_probe_holds_the_regular_containers_back() -> None:
    play = Play().wanting(with_sidecars(sidecar("s", startupProbe={"exec": {}})))
    play.later(120)
    assert play.running("u1") == [("s", 0)]
    play.probed("u1", "s", startup="success")
    assert play.running("u1") == [("s", 0), ("c", 0)]


def test_readiness_is_not_waited_for() -> None:
    play = Play().wanting(with_sidecars(sidecar("s", readinessProbe={"exec": {}})))
    assert play.running("u1") == [("s", 0), ("c", 0)]


def test_a_failed_startup_probe_restarts_it_within_the_grace_of_the_probe() -> None:
    play = Play().wanting(with_sidecars(sidecar("s", startupProbe={"exec": {}, "terminationGracePeriodSeconds": 3})))
    play.probed("u1", "s", startup="failure")
    assert (play.running("u1"), play.stops) == ([("s", 1)], [3])
    assert "Normal Killing: Init container s failed startup probe" in play.events


def test_a_failed_liveness_probe_restarts_it_under_every_policy() -> None:
    for policy in ("Always", "Never"):
        play = Play().wanting(with_sidecars(sidecar("s", livenessProbe={"exec": {}}), restartPolicy=policy))
        play.probed("u1", "s", liveness="failure")
        assert sorted(play.running("u1")) == [("c", 0), ("s", 1)]
        assert "Normal Killing: Init container s failed liveness probe" in play.events


def test_a_restarted_prober_takes_no_start_back() -> None:
    play = Play().wanting(with_sidecars(sidecar("s", startupProbe={"exec": {}})))
    play.probed("u1", "s", startup="success")
    play.probed("u1", "s")
    play.exit("u1", 1)
    assert play.running("u1") == [("s", 0), ("c", 1)]


def test_one_that_ends_is_started_again_whatever_its_exit_code_and_the_pods_policy() -> None:
    for policy, code in (("Always", 0), ("Never", 0), ("OnFailure", 0), ("Never", 1)):
        play = Play().wanting(with_sidecars(sidecar("s"), restartPolicy=policy))
        play.exit("u1", code, "s")
        assert sorted(play.running("u1")) == [("c", 0), ("s", 1)], (policy, code)


def test_its_crash_loop_backs_off_like_any_other_and_holds_nothing_up() -> None:
    play = Play().wanting(with_sidecars(sidecar("s"), a_container("a")))
    play.exit("u1", 1, "s")
    play.exit("u1", 1, "s")
    assert play.reason("s")[0] == "CrashLoopBackOff"
    play.exit("u1", 0, "a")
    assert play.running("u1") == [("c", 0)]
    play.later(10.5)
    assert sorted(play.running("u1")) == [("c", 0), ("s", 2)]


def test_one_that_ends_while_an_init_container_runs_is_started_beside_it() -> None:
    play = Play().wanting(with_sidecars(sidecar("s"), a_container("a")))
    play.exit("u1", 1, "s")
    assert sorted(play.running("u1")) == [("a", 0), ("s", 1)]


@pytest.mark.parametrize(("policy", "code", "phase"), [("Never", 0, "Succeeded"), ("OnFailure", 0, "Succeeded")])
def test_sidecars_do_not_keep_a_finished_pod_alive(policy: str, code: int, phase: str) -> None:
    play = Play().wanting(with_sidecars(sidecar("s"), restartPolicy=policy))
    play.exit("u1", code)
    assert play.running("u1") == []
    assert play.published["u1"].admitted.state is PodState.FINISHED
    assert play.statuses["u1"].status["phase"] == phase
    assert [made for made in play.made if made[1] == "s"] == [("u1", "s", 0)], "not restarted once all is over"
    assert play.stops == [30]


def test_a_pod_that_failed_ends_with_its_sidecars_and_stays_failed() -> None:
    play = Play().wanting(with_sidecars(sidecar("s"), restartPolicy="Never"))
    play.exit("u1", 4)
    assert play.statuses["u1"].status["phase"] == "Failed" and play.running("u1") == []


def test_a_changed_image_restarts_it() -> None:
    play = Play(images={"busybox:1", "busybox:2"}).wanting(with_sidecars(sidecar("s")))
    play.want(with_sidecars(sidecar("s") | {"image": "busybox:2"}))
    assert sorted(play.running("u1")) == [("c", 0), ("s", 1)]
    assert "Normal Killing: Init container s definition changed" in play.events


def test_one_that_is_added_behind_a_running_pod_is_started() -> None:
    play = Play().wanting(with_sidecars(sidecar("s")), with_sidecars(sidecar("s"), sidecar("t")))
    assert sorted(play.running("u1")) == [("c", 0), ("s", 0), ("t", 0)]


def test_they_end_last_and_the_first_of_them_after_all_others() -> None:
    play = Play()
    pod = with_sidecars(sidecar("s"), sidecar("t"))
    pod["spec"]["containers"].append(a_container("d"))
    play.want(pod)
    play.drop("u1")
    assert {name: set(after) for name, after in stops(play).items()} == {
        "c": set(),
        "d": set(),
        "t": {"c", "d"},
        "s": {"c", "d", "t"},
    }


def test_a_plain_init_container_that_runs_is_stopped_at_once() -> None:
    play = Play().wanting(with_sidecars(sidecar("s"), a_container("a")))
    play.drop("u1")
    assert stops(play) == {"s": (), "a": ()}


def test_the_order_is_for_whole_pods_alone() -> None:
    play = Play().wanting(with_sidecars(sidecar("s", livenessProbe={"exec": {}})))
    play.probed("u1", "s", liveness="failure")
    assert [stop.after for stop in play.stopped] == [()]


def test_the_hooks_of_all_begin_together() -> None:
    play = Play().wanting(with_sidecars(sidecar("s", lifecycle=SLEEP)))
    play.drop("u1")
    assert {stop.container: stop.pre_stop for stop in play.stopped} == {"c": False, "s": True}


def test_one_in_an_unknown_state_is_killed_and_started_again() -> None:
    play = Play().wanting(with_sidecars(sidecar("s")))
    lost = play.containers["u1"][0]
    play.containers["u1"][0] = replace(lost, state=ContainerState.UNKNOWN)
    play.observe("u1")
    assert sorted(play.running("u1")) == [("c", 0), ("s", 1)]


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("only_urgent", [False, True])
@pytest.mark.parametrize("step", every_step(89))
def test_a_kill_at_any_step_changes_nothing_in_the_end(step: int, only_urgent: bool) -> None:
    play = Play(kill_at=step, only_urgent=only_urgent, listed=True)
    play.want(with_sidecars(sidecar("s"), a_container("a"), restartPolicy="Never"))
    play.later(2)
    play.exit("u1", 1, "s")
    play.later(2)
    play.exit("u1", 0, "a")
    play.later(2)
    assert sorted(play.running("u1")) == [("c", 0), ("s", 1)]
    play.exit("u1", 0)
    play.later(2)
    assert play.running("u1") == []
    assert play.statuses["u1"].status["phase"] == "Succeeded"
    assert play.made == [("u1", "s", 0), ("u1", "a", 0), ("u1", "s", 1), ("u1", "c", 0)]
    play.drop("u1")
    play.later(70)
    assert play.disk == {} and play.sandboxes["u1"] == [] and play.containers["u1"] == []
