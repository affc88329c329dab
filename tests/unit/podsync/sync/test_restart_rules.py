"""Restart policies and rules of single containers (pods.md 5.3 "Restart rules"; worked by hand)."""

from typing import Any

import pytest

from services.podsync.core.pod.listed_by_source import as_listed
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.restart_rules import may_restart_all, restarts_after, restarts_all
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step


def rule(action: str, *codes: int, operator: str = "In") -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}


def ruled(policy: str, *rules: dict[str, Any], name: str = "c") -> Pod:
    return a_container(name, restartPolicy=policy, restartPolicyRules=list(rules))


def record_of(pod: Pod) -> TrackedPod:
    return as_listed(TrackedPod(uid="u1", name="web", namespace="default"), "file", pod)


CASES = [
    # pod's policy, container, exit code, restarted
    ("Always", a_container("c"), 0, True),
    ("Always", a_container("c"), 1, True),
    ("OnFailure", a_container("c"), 0, False),
    ("OnFailure", a_container("c"), 1, True),
    ("Never", a_container("c"), 1, False),
    ("Never", a_container("c", restartPolicy="Always"), 0, True),
    ("Never", a_container("c", restartPolicy="OnFailure"), 0, False),
    ("Never", a_container("c", restartPolicy="OnFailure"), 9, True),
    ("Always", a_container("c", restartPolicy="Never"), 9, False),
    ("Always", a_container("c", restartPolicy="OnFailure"), 0, False),
    ("Never", ruled("Never", rule("Restart", 42)), 42, True),
    ("Never", ruled("Never", rule("Restart", 42)), 41, False),
    ("Never", ruled("Never", rule("Restart", 42)), 0, False),
    ("Never", ruled("Never", rule("Restart", 0)), 0, True),
    ("Never", ruled("Never", rule("Restart", 1, operator="NotIn")), 2, True),
    ("Never", ruled("Never", rule("Restart", 1, operator="NotIn")), 1, False),
    ("Never", ruled("Never", rule("Restart", 1, 2, 3)), 3, True),
    ("Never", ruled("OnFailure", rule("Restart", 0)), 0, True),
    ("Never", ruled("OnFailure", rule("Restart", 5)), 6, True),
    ("Always", ruled("Never", rule("Restart", 5)), 6, False),
    ("Never", ruled("Never", rule("RestartAllContainers", 7)), 7, True),
    ("Never", ruled("Never", rule("Restart", 1), rule("RestartAllContainers", 1)), 1, True),
    ("Never", a_container("c", restartPolicyRules=[rule("Restart", 1)]), 1, False),  # no policy, so no rules
    ("Always", a_container("c", restartPolicyRules=[rule("Restart", 1)]), 2, True),
]


def test_whether_a_regular_container_is_restarted(subtests: pytest.Subtests) -> None:
    for policy, container, code, restarted in CASES:
        with subtests.test(policy):
            tracked = record_of(a_pod(containers=[container], restartPolicy=policy))
            assert restarts_after(tracked, container, code) is restarted


INIT_CASES = [
    ("Always", a_container("i"), 1, True),
    ("Always", a_container("i"), 0, False),
    ("OnFailure", a_container("i"), 1, True),
    ("Never", a_container("i"), 1, False),
    ("Never", a_container("i", restartPolicy="OnFailure"), 1, True),
    ("Always", a_container("i", restartPolicy="Never"), 1, False),
    ("Never", ruled("Never", rule("Restart", 42), name="i"), 42, True),
    ("Never", ruled("Never", rule("Restart", 42), name="i"), 43, False),
    ("Never", ruled("Never", rule("Restart", 0), name="i"), 0, False),  # it has succeeded
    ("Never", a_container("i", restartPolicy="Always"), 0, True),
    ("Never", a_container("i", restartPolicy="Always"), 1, True),
]


@pytest.mark.parametrize(("policy", "container", "code", "restarted"), INIT_CASES)
def test_whether_an_init_container_is_restarted(policy: str, container: Pod, code: int, restarted: bool) -> None:
    tracked = record_of(a_pod(initContainers=[container], restartPolicy=policy))
    assert restarts_after(tracked, container, code) is restarted


def test_an_ephemeral_container_never_is() -> None:
    container = a_container("e")
    tracked = record_of(a_pod(ephemeralContainers=[container], restartPolicy="Always"))
    assert restarts_after(tracked, container, 1) is False


def test_the_first_rule_that_matches_counts() -> None:
    first = ruled("Never", rule("Restart", 1), rule("RestartAllContainers", 1, 2))
    tracked = record_of(a_pod(containers=[first]))
    assert restarts_all(tracked, first, 1) is False
    assert restarts_all(tracked, first, 2) is True
    assert restarts_all(tracked, first, 3) is False


def test_only_a_pod_with_such_a_rule_may_ever_restart_all() -> None:
    assert not may_restart_all(record_of(a_pod(containers=[ruled("Never", rule("Restart", 1))])))
    assert may_restart_all(record_of(a_pod(containers=[ruled("Never", rule("RestartAllContainers", 1))])))


def test_a_container_is_restarted_by_its_rule_in_a_pod_that_never_restarts() -> None:
    play = Play().wanting(a_pod(containers=[ruled("Never", rule("Restart", 42))], restartPolicy="Never"))
    play.exit("u1", 42)
    assert play.running("u1") == [("c", 1)]
    play.exit("u1", 1)
    assert play.running("u1") == [] and play.statuses["u1"].status["phase"] == "Failed"


def test_a_rule_backs_off_like_any_restart_and_survives_a_restart_of_podsync() -> None:
    play = Play().wanting(a_pod(containers=[ruled("Never", rule("Restart", 42))], restartPolicy="Never"))
    play.exit("u1", 42)
    play.exit("u1", 42)
    play.restart()
    assert play.reason("c")[0] == "CrashLoopBackOff"
    play.later(9)
    assert play.running("u1") == []
    play.later(1.5)
    assert play.running("u1") == [("c", 2)]


def test_a_failed_probe_asks_the_containers_own_policy_and_no_rule() -> None:
    play = Play()
    probed = ruled("Never", rule("Restart", 137)) | {"livenessProbe": {"exec": {}}}
    play.want(a_pod(containers=[probed, a_container("d")], restartPolicy="Always"))
    play.probed("u1", liveness="failure")
    assert "Normal Killing: Container c failed liveness probe" in play.events
    always = a_container("c", restartPolicy="Always", livenessProbe={"exec": {}})
    other = Play()
    other.want(a_pod(containers=[always], restartPolicy="Never"))
    other.probed("u1", liveness="failure")
    assert other.running("u1") == [("c", 1)]


def test_one_that_ended_for_good_is_not_run_again_in_a_new_sandbox_where_it_asked_for_that() -> None:
    play = Play()
    done = a_container("d", restartPolicy="OnFailure")
    play.want(a_pod(containers=[a_container("c"), done], restartPolicy="Always"))
    play.exit("u1", 0, "d")
    play.sandboxes["u1"].clear()
    play.exit("u1", 137)
    assert play.running("u1") == [("c", 1)]


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(49))
def test_a_kill_at_any_step_of_a_restart_by_a_rule_changes_nothing_in_the_end(step: int) -> None:
    play = Play(only_urgent=True)
    play.want(a_pod(containers=[ruled("Never", rule("Restart", 42))], restartPolicy="Never"))
    play.kill_at, play.steps = step, 0
    play.exit("u1", 42)
    play.later(2)
    play.exit("u1", 42)
    play.later(12)
    assert play.running("u1") == [("c", 2)] and len(play.made) == 3
