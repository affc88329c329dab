"""What podsync must not do on a guess: decide, show or wait by unknown inputs, or by a clock that was set."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.messages.podsync import PodState
from services.podsync.core.admission import admitting
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.admission.verdict import admit
from services.podsync.core.machine import PodSync
from services.podsync.core.pod.events import NodeChanged, PodDesired, RuntimeChanged
from services.podsync.core.pod.instructions import ReportInternalError
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.time.timestamps import rfc3339
from tests.unit.podsync.play import Play
from tests.unit.podsync.test_api_pods import DELETION, a_play, an_api_pod, changed, node, sized, status_of

READY = RuntimeChanged(reachable=True, network_ready=True, supplemental_groups_policy=True)


def raises_for(name: str, decide: Callable[..., Any]) -> Callable[..., Any]:
    """The same decision, but for the pod of this name."""

    def decide_or_raise(pod: dict[str, Any], *args: Any, **named: Any) -> Any:
        if pod["metadata"]["name"] == name:
            raise ValueError("a mistake")
        return decide(pod, *args, **named)

    return decide_or_raise


class TestAdmission:
    def test_a_pod_is_not_admitted_before_its_node_is_known(self) -> None:
        play = a_play(joins_cluster=True).wanting(an_api_pod(nodeSelector={"disk": "ssd"}))
        assert play.statuses == {}
        assert play.published == {}
        play.happen(NodeChanged(node=node(disk="ssd")))
        assert play.running("u1") == [("c", 0)]

    def test_nor_before_the_runtime_has_reported(self) -> None:
        play = a_play(runtime_reported=False)
        play.want(an_api_pod(securityContext={"supplementalGroupsPolicy": "Strict"}))
        assert play.statuses == {}
        play.happen(READY)
        assert play.running("u1") == [("c", 0)]

    def test_a_static_pod_does_not_wait_for_the_node(self) -> None:
        play = Play(joins_cluster=True)
        pod = an_api_pod()
        pod["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
        play.want(pod)
        assert play.running("u1") == [("c", 0)]

    def test_those_that_waited_are_admitted_by_age(self) -> None:
        play = a_play(joins_cluster=True, facts=MachineFacts(allocatable={"pods": "1"}))
        for uid, born in (("young", "2030-01-02T00:00:00Z"), ("old", "2030-01-01T00:00:00Z")):
            play.want(changed(an_api_pod(uid, uid), creationTimestamp=born))
        play.happen(NodeChanged(node=node()))
        assert play.running("old") == [("c", 0)]
        assert status_of(play, "young")["reason"] == "OutOfpods"

    @pytest.mark.parametrize("by", ["its deadline", "its phase"])
    def test_a_pod_that_ends_while_it_waits_needs_no_verdict_and_holds_up_no_other(self, by: str) -> None:
        play = a_play(joins_cluster=True, facts=MachineFacts(allocatable={"cpu": "1", "pods": "10"}))
        limit = {"activeDeadlineSeconds": 60} if by == "its deadline" else {}
        old = changed(sized("old", "100", **limit), creationTimestamp="2030-01-01T00:00:00Z")
        play.want(old | {"status": {"phase": "Running", "startTime": "1970-01-01T00:00:01Z"}})
        play.want(changed(an_api_pod("young", "young"), creationTimestamp="2030-01-02T00:00:00Z"))
        if by == "its phase":
            play.want(old | {"status": {"phase": "Failed"}})
        play.happen(NodeChanged(node=node()))
        assert play.running("young") == [("c", 0)]
        assert status_of(play, "old")["phase"] == "Failed"
        assert status_of(play, "old").get("reason") == ("DeadlineExceeded" if by == "its deadline" else None)
        play.want(changed(play.wanted["old"], **DELETION))
        play.drop("old")
        play.later(61)
        assert "old" not in play.core.tracked

    def test_a_mistake_in_the_decision_about_one_pod_holds_up_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        play = a_play(joins_cluster=True, mistakes_expected=True)
        for number, uid in enumerate(("odd", "plain")):
            play.want(changed(an_api_pod(uid, uid), creationTimestamp=f"2030-01-0{number + 1}T00:00:00Z"))
        monkeypatch.setattr(admitting, "admit", raises_for("odd", admit))
        play.handle(NodeChanged(node=node()))
        reported = [one for one in play.queue if isinstance(one, ReportInternalError)]
        assert [(one.uid, str(one.error)) for one in reported] == [("odd", "a mistake")]
        play.run()
        assert play.running("plain") == [("c", 0)] and play.running("odd") == []
        monkeypatch.undo()
        play.happen(NodeChanged(node=node(disk="ssd")))
        assert play.running("odd") == [("c", 0)]

    def test_a_crash_while_waiting_gives_no_verdict(self) -> None:
        play = a_play(joins_cluster=True).wanting(an_api_pod())
        play.restart()
        assert play.statuses == {}
        play.happen(NodeChanged(node=None))
        assert play.running("u1") == [("c", 0)]


class TestRestored:
    def test_an_older_record_is_not_shown_before_the_pod_was_looked_at(self) -> None:
        play = a_play().wanting(an_api_pod())
        older = {**play.disk["u1"], "status": {**play.disk["u1"]["status"], "phase": "Pending"}}
        play.disk["u1"] = older
        play.fail_always["LookAtPod"] = ("Unavailable", "away")
        play.statuses.clear()
        play.restart()
        assert play.statuses == {}
        play.fail_always.clear()
        play.later(60)
        assert status_of(play)["phase"] == "Running"


class TestMistakes:
    def test_a_mistake_with_one_pod_costs_the_others_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        play = a_play(mistakes_expected=True).wanting(an_api_pod("good", "good"), an_api_pod("bad", "bad"))
        advance = PodSync._advance

        def mistaken(self: PodSync, tracked: TrackedPod, cause: str, now: float) -> Any:
            if tracked.uid == "bad":
                raise KeyError("lastTransitionTime")
            return advance(self, tracked, cause, now)

        monkeypatch.setattr(PodSync, "_advance", mistaken)
        play.happen(READY)
        play.want(an_api_pod("new", "new"))
        assert play.running("new") == [("c", 0)]
        play.exit("good", 1)
        assert play.running("good") == [("c", 1)]
        monkeypatch.undo()
        play.later(20)
        play.exit("bad", 1)
        assert play.running("bad") == [("c", 1)]

    @pytest.mark.long
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["type", "status", "name", "state", "lastState", "terminated", "running", "exitCode", "ip"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    def test_no_status_of_the_api_server_is_too_odd(self, odd: Any) -> None:
        for key in ("conditions", "containerStatuses", "podIPs", "phase", "startTime"):
            play = a_play().wanting(an_api_pod(status={key: odd}))
            play.later(1)
            assert play.core.tracked["u1"].saved.state in (PodState.SYNC, PodState.FINISHED)

    def test_a_condition_without_its_time_is_taken_on_with_ours(self) -> None:
        given_status = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": None}]}
        play = a_play().wanting(an_api_pod(status=given_status))
        scheduled = next(c for c in status_of(play)["conditions"] if c["type"] == "PodScheduled")
        assert scheduled["lastTransitionTime"]


class TestGrace:
    def test_none_at_all_is_one_second_and_not_that_of_the_spec(self) -> None:
        play = a_play()
        pod = an_api_pod()
        play.want(pod)
        play.want(changed(pod, **{**DELETION, "deletionGracePeriodSeconds": 0}))
        assert play.stops == [2]  # a StopContainer is never shorter


class TestNames:
    def test_a_pod_of_the_api_server_waits_for_no_other_of_its_name(self) -> None:
        play = a_play().wanting(an_api_pod("u1", "db-0"))
        play.fail_always["KillPod"] = ("Unavailable", "the old one hangs")
        play.drop("u1")
        play.want(an_api_pod("u2", "db-0"))
        assert play.running("u2") == [("c", 0)]


class TestClock:
    def test_a_clock_set_back_stops_no_back_off_and_a_clock_set_forward_ends_none(self) -> None:
        for step in (-3600.0, 3600.0):
            play = a_play().wanting(an_api_pod())
            play.exit("u1", 1)
            play.core.node_state.skew = step
            for i, c in enumerate(play.containers["u1"]):
                if c.state == "RUNNING":  # the runtime reports the end by the clock that was set
                    ended = int((play.wall + step) * 1e9)
                    play.containers["u1"][i] = replace(c, state=type(c.state).EXITED, exit_code=1, finished_at=ended)
            play.observe("u1")
            assert play.running("u1") == [], f"step {step}: the back-off holds"
            play.later(11)
            assert len(play.running("u1")) == 1, f"step {step}: and is over when it is over"

    def test_a_clock_set_back_between_two_processes_stalls_no_pull(self) -> None:
        play = a_play(images=set())
        play.fail["PullImage"] = ("NotFound", "no such image")
        play.want(an_api_pod())
        play.wall -= 3600
        play.restart()
        play.later(21)
        assert play.running("u1") == [("c", 0)]

    def test_a_deadline_does_not_fire_because_the_clock_was_set(self) -> None:
        play = a_play().wanting(an_api_pod(activeDeadlineSeconds=600))
        play.core.node_state.skew = 3600.0
        play.happen(READY)
        assert play.running("u1") == [("c", 0)]
        assert status_of(play)["phase"] == "Running"

    @pytest.mark.parametrize("skew", [0.0, 3600.0, -3600.0])
    def test_of_a_pod_that_another_agent_started_the_deadline_counts_by_one_clock(self, skew: float) -> None:
        play = a_play()
        play.core.node_state.skew = skew
        begun = {"phase": "Running", "startTime": rfc3339(play.wall + skew)}
        play.want(an_api_pod(status=begun, activeDeadlineSeconds=60))
        play.later(55)
        assert status_of(play)["phase"] == "Running"
        play.later(10)
        assert status_of(play)["reason"] == "DeadlineExceeded"

    def test_of_a_pod_whose_start_is_no_time_the_deadline_counts_from_now(self) -> None:
        play = a_play().wanting(an_api_pod(status={"phase": "Running", "startTime": "soon"}, activeDeadlineSeconds=60))
        play.later(55)
        assert status_of(play)["phase"] == "Running"
        play.later(10)
        assert status_of(play)["reason"] == "DeadlineExceeded"


class TestVictims:
    def test_one_that_cannot_be_killed_is_not_waited_for_for_ever(self) -> None:
        play = a_play(facts=MachineFacts(node_name="n", allocatable={"cpu": "1", "pods": "10"}))
        play.want(sized("large", "1", terminationGracePeriodSeconds=4))
        play.fail_always["KillPod"] = ("Unavailable", "it hangs")
        play.want(sized("vital", "1", priority=2_000_000_000))
        play.later(9)
        assert play.running("vital") == []
        play.later(5)
        assert play.running("vital") == [("c", 0)]
        text = "Warning ExceededGracePeriod: Container runtime did not kill the pod within specified grace period."
        play.later(30)
        assert play.events.count(text) == 1


def test_a_verdict_is_asked_for_once() -> None:
    play = a_play(node=node())
    pod = an_api_pod(nodeSelector={"disk": "ssd"})
    play.handle(NodeChanged(node=node()))
    play.want(pod)
    play.handle(PodDesired(uid="u1", source="api", pod=pod))
    play.happen(NodeChanged(node=node(disk="ssd")))
    assert play.log.count("FetchNode") == 1
    assert status_of(play)["reason"] == "NodeAffinity"
