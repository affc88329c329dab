"""What goes on in a new sandbox of a pod with restartPolicy Never: containers whose own policy or rules restart them
(pods.md 5.3.2a)."""

from typing import Any

import pytest

from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState, SandboxState
from tests.unit.podsync.play import a_container, a_pod, every_step
from tests.unit.podsync.sync.test_killed_for_restart import PlayOfStops


def rule(*codes: int) -> list[dict[str, Any]]:
    return [{"action": "Restart", "exitCodes": {"operator": "In", "values": list(codes)}}]


def own(policy: str, *codes: int, name: str = "c") -> dict[str, Any]:
    """A container with a restart policy of its own, and a rule on these exit codes."""
    rules = {"restartPolicyRules": rule(*codes)} if codes else {}
    return a_container(name, restartPolicy=policy, **rules)


def after_the_sandbox_died(pod: dict[str, Any], code: int = 137, ends: dict[str, int] | None = None) -> PlayOfStops:
    """What the pod is 30 s after its pause process died; `ends`: containers that end by themselves before that, with
    their codes. What podsync stops ends with `code`."""
    play = PlayOfStops(code=code)
    play.want(pod)
    for name, exit_code in (ends or {}).items():
        play.exit("u1", exit_code, name)
    play.lose_sandbox()
    play.later(30)
    return play


@pytest.mark.long
@pytest.mark.parametrize(
    ("container", "code", "goes_on"),
    [
        (own("OnFailure", 0), 143, True),
        (own("OnFailure", 0), 0, True),
        (own("OnFailure"), 0, True),  # it was stopped at work
        (own("Always"), 0, True),
        (own("Never", 137), 137, True),
        (own("Never", 42), 137, False),
        (own("Never"), 137, False),
        (a_container("c"), 137, False),
    ],
)
def test_a_container_goes_on_where_its_own_policy_or_rules_restart_it(
    container: dict[str, Any], code: int, goes_on: bool
) -> None:
    play = after_the_sandbox_died(a_pod(containers=[container], restartPolicy="Never"), code)
    phase = play.statuses["u1"].status["phase"]
    assert (play.running("u1"), phase) == (([("c", 1)], "Running") if goes_on else ([], "Failed"))


def test_the_rule_counts_after_earlier_ends_as_well() -> None:
    play = after_the_sandbox_died(a_pod(containers=[own("OnFailure", 0)], restartPolicy="Never"), ends={"c": 0})
    assert play.running("u1") == [("c", 2)]


@pytest.mark.parametrize("ends", [{}, {"once": 0}, {"once": 3}])
def test_the_others_of_the_pod_are_not_run_again(ends: dict[str, int]) -> None:
    pod = a_pod(containers=[a_container("once"), own("OnFailure")], restartPolicy="Never")
    play = after_the_sandbox_died(pod, ends=ends)
    assert play.running("u1") == [("c", 1)] and play.made.count(("u1", "once", 0)) == 1
    play.exit("u1", 0)
    assert play.statuses["u1"].status["phase"] == ("Succeeded" if ends == {"once": 0} else "Failed")


def test_the_pod_ends_where_all_that_could_go_on_has_succeeded() -> None:
    pod = a_pod(containers=[a_container("once"), own("OnFailure")], restartPolicy="Never")
    play = after_the_sandbox_died(pod, ends={"c": 0})
    assert play.running("u1") == [] and play.statuses["u1"].status["phase"] == "Failed"


def test_one_that_was_created_and_did_not_run_yet_is_started() -> None:
    play = PlayOfStops(hang={"StartContainer"})
    play.want(a_pod(restartPolicy="Never"))
    assert [c.state for c in play.containers["u1"]] == [ContainerState.CREATED]
    play.sandboxes["u1"] = [replace(s, state=SandboxState.NOTREADY) for s in play.sandboxes["u1"]]
    play.restart()
    play.later(30)
    assert [name for name, _ in play.running("u1")] == ["c"]


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(30))
def test_a_kill_at_any_step_changes_nothing_in_the_end(step: int) -> None:
    play = PlayOfStops(code=0, only_urgent=True)
    play.want(a_pod(containers=[a_container("once"), own("OnFailure", 0)], restartPolicy="Never"))
    play.kill_at, play.steps = step, 0
    play.lose_sandbox()
    play.later(30)
    assert play.running("u1") == [("c", 1)] and play.made.count(("u1", "once", 0)) == 1
    assert not any(name == "once" and attempt for _, name, attempt in play.made)
