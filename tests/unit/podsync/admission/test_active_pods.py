"""Which pods count when another one is admitted, and when a verdict is final: tests of the core alone."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.pod.events import (
    CallDone,
    Event,
    NodeChanged,
    PodDesired,
    PodObserved,
    RuntimeChanged,
    SourcesFreshness,
    TimePassed,
    VolumesFreshness,
)
from shared.model.runtime import RuntimePod
from tests.unit.podsync.play import Play, a_container, a_pod

FACTS = MachineFacts(node_name="n1", allocatable={"cpu": "1", "pods": "10"})
STRICT = {"supplementalGroupsPolicy": "Strict"}


def asking(uid: str, name: str, *, cpu: str = "600m", port: int = 0, source: str = "file", **spec: Any) -> Any:
    ports = [{"containerPort": port, "hostPort": port, "protocol": "TCP"}] if port else []
    container = a_container("c", resources={"requests": {"cpu": cpu}}, ports=ports)
    pod = a_pod(uid, name, containers=[container], **spec)
    pod["metadata"]["annotations"] = {"kubernetes.io/config.source": source}
    return pod


def deleted(pod: Any) -> Any:
    return pod | {"metadata": pod["metadata"] | {"deletionTimestamp": "2030-01-01T00:00:00Z"}}


def a_play(**fields: Any) -> Play:
    return Play(facts=FACTS, **fields)


def reason(play: Play, uid: str) -> str:
    return play.core.tracked[uid].saved.rejected


class TestUnlisted:
    def test_an_edited_static_pod_with_a_host_port_is_admitted_and_starts_once_the_one_before_has_ended(self) -> None:
        play = a_play().wanting(asking("u1", "etcd", port=2379))
        play.hang = {"KillPod"}
        play.drop("u1")
        play.want(asking("u2", "etcd", port=2379))
        assert reason(play, "u2") == ""
        assert play.running("u1") == [("c", 0)] and play.running("u2") == []
        play.restart()
        assert play.running("u1") == [] and play.running("u2") == [("c", 0)]

    def test_the_requests_of_an_edited_static_pod_count_once_and_no_other_pod_is_preempted(self) -> None:
        play = a_play().wanting(asking("u0", "innocent", cpu="500m", source="api"), asking("u1", "etcd", cpu="400m"))
        play.hang = {"KillPod"}
        play.drop("u1")
        play.want(asking("u2", "etcd", cpu="400m"))
        assert (reason(play, "u2"), play.core.tracked["u2"].saved.victims) == ("", ())
        assert play.running("u0") == [("c", 0)]
        assert not any("Preempting" in event for event in play.events)

    def test_a_force_deleted_pod_neither_takes_its_port_from_its_replacement_nor_is_preempted(self) -> None:
        play = a_play(source="api").wanting(asking("u1", "web-1", port=80, source="api"))
        play.hang = {"KillPod"}
        play.drop("u1")
        play.want(asking("u2", "web-2", port=80, source="api", priority=2_000_000_000))
        assert (reason(play, "u2"), play.core.tracked["u2"].saved.victims) == ("", ())
        assert play.running("u2") == [("c", 0)]

    def test_a_pod_that_terminates_and_is_still_listed_counts(self) -> None:
        play = a_play(source="api")
        pod = asking("u1", "web-1", port=80, source="api")
        play.want(pod)
        play.hang = {"KillPod"}
        play.want(deleted(pod))
        assert play.core.tracked["u1"].saved.state is PodState.TERMINATING
        play.want(asking("u2", "web-2", cpu="100m", port=80, source="api"))
        assert reason(play, "u2") == "NodePorts"
        assert [tracked.uid for tracked in play.core.node_state.admissions.active()] == ["u1"]

    def test_a_static_pod_edited_and_edited_back_while_it_ends_starts_once_more_and_the_edit_never(self) -> None:
        play = a_play().wanting(asking("u1", "etcd", port=2379))
        play.hang = {"KillPod"}
        play.drop("u1")
        play.want(asking("u2", "etcd", port=2380))
        play.drop("u2")
        play.want(asking("u1", "etcd", port=2379))
        play.restart()
        assert play.running("u1") == [("c", 0)] and list(play.core.tracked) == ["u1"]
        assert [uid for uid, _, _ in play.made] == ["u1", "u1"]


class TestAfterARestart:
    @pytest.mark.parametrize("complete", [True, False])
    def test_a_static_pod_edited_meanwhile_takes_the_place_of_the_one_before(self, complete: bool) -> None:
        """Also while the API server is away and the sources are not complete."""
        play = a_play().wanting(asking("u1", "etcd", port=2379))
        play.wanted = {"u2": asking("u2", "etcd", port=2379)}
        play.sources_complete = complete
        play.restart()
        assert play.running("u1") == [] and play.running("u2") == [("c", 0)]

    def test_a_static_pod_added_meanwhile_is_admitted_beside_those_of_the_checkpoint(self) -> None:
        play = a_play()
        first = asking("u1", "one", cpu="100m", port=80)
        play.want(first)
        play.wanted, play.sources_complete = {"u2": asking("u2", "two", cpu="100m", port=80)}, False
        play.restart()
        assert not play.core.tracked["u2"].saved.admission_decided  # "one" may be listed yet, or not
        play.want(first)
        assert reason(play, "u2") == "NodePorts"

    def test_or_without_those_that_turn_out_to_be_gone(self) -> None:
        play = a_play().wanting(asking("u1", "one", cpu="100m", port=80))
        play.wanted, play.sources_complete = {"u2": asking("u2", "two", cpu="100m", port=80)}, False
        play.start()
        play.happen(SourcesFreshness(complete=True, stale=False, listed=frozenset({"u2"})))
        assert play.running("u1") == [] and play.running("u2") == [("c", 0)]

    def test_a_static_pod_does_not_wait_for_the_api_server_to_list_its_pods(self) -> None:
        play = a_play(source="api").wanting(asking("u1", "web", source="api", port=80))
        play.wanted, play.source, play.sources_complete = {"u2": asking("u2", "etcd", port=80)}, "file", False
        play.restart()
        assert play.running("u2") == [("c", 0)] and play.running("u1") == [("c", 0)]


class TestRejected:
    def test_a_rejected_static_pod_is_decided_again_at_a_new_start_of_the_agent_only(self) -> None:
        play = a_play(agent_start="first").wanting(asking("u1", "etcd", cpu="2"))
        assert reason(play, "u1") == "UnexpectedAdmissionError"
        play.facts = MachineFacts(node_name="n1", allocatable={"cpu": "4", "pods": "10"})
        play.restart()
        assert reason(play, "u1") == "UnexpectedAdmissionError"
        play.agent_start = "second"
        play.restart()
        assert play.running("u1") == [("c", 0)]
        assert play.statuses["u1"].status["phase"] == "Running"

    def test_it_is_rejected_again_where_nothing_has_changed(self) -> None:
        play = a_play(agent_start="first").wanting(asking("u1", "etcd", cpu="2"))
        play.agent_start = "second"
        play.restart()
        assert reason(play, "u1") == "UnexpectedAdmissionError"
        assert play.disk["u1"]["decided_by"] == "second"

    @pytest.mark.parametrize("kill_after", range(1, 12))
    def test_a_kill_while_it_is_decided_again_changes_nothing(self, kill_after: int) -> None:
        play = a_play(agent_start="first").wanting(asking("u1", "etcd", cpu="2"))
        play.facts, play.agent_start = FACTS, "second"
        play.wanted = {"u1": asking("u1", "etcd")}
        play.disk["u1"]["pod"] = play.wanted["u1"]
        play.kill_at = play.steps + kill_after
        play.restart()
        assert play.running("u1") == [("c", 0)]

    def test_a_rejected_pod_of_the_api_server_stays_failed(self) -> None:
        play = a_play(source="api", agent_start="first").wanting(asking("u1", "web", cpu="2", source="api"))
        play.facts = MachineFacts(node_name="n1", allocatable={"cpu": "4", "pods": "10"})
        play.agent_start = "second"
        for _ in range(2):
            play.restart()
        assert play.statuses["u1"].status["phase"] == "Failed"
        lack = "Node didn't have enough resource: cpu, requested: 2000, used: 0, capacity: 1000"
        assert play.events == [f"Warning OutOfcpu: {lack}"], "an event of the verdict, not of each start"

    def test_a_static_pod_is_not_rejected_before_the_runtime_has_reported(self) -> None:
        play = a_play(runtime_reported=False).wanting(asking("u1", "etcd", securityContext=STRICT))
        play.happen(RuntimeChanged(reachable=False, network_ready=False))
        assert not play.core.tracked["u1"].saved.admission_decided
        play.happen(RuntimeChanged(reachable=True, network_ready=True, supplemental_groups_policy=True))
        assert play.running("u1") == [("c", 0)]

    def test_nor_for_a_node_that_is_not_known(self) -> None:
        play = a_play(joins_cluster=True).wanting(asking("u1", "etcd", nodeSelector={"zone": "a"}))
        assert not play.core.tracked["u1"].saved.admission_decided
        play.happen(NodeChanged(node={"metadata": {"name": "n1", "labels": {"zone": "a"}}}))
        assert play.running("u1") == [("c", 0)]

    def test_a_pod_dropped_while_the_node_is_read_for_its_verdict_ends_at_once(self) -> None:
        play = a_play(source="api", hang={"FetchNode"})
        play.want(asking("u1", "web", source="api", nodeSelector={"zone": "a"}))
        call = play.core.tracked["u1"].call
        assert call is not None
        play.drop("u1")
        assert play.core.tracked == {} and "InterruptCall FetchNode" in play.log
        play.happen(CallDone(uid="u1", call=call, completed_at=play.wall))
        assert play.core.tracked == {} and play.log.count("FetchNode") == 1

    def test_a_pod_dropped_before_its_admission_leaves_nothing(self) -> None:
        play = a_play(runtime_reported=False).wanting(asking("u1", "etcd"))
        play.drop("u1")
        play.later(120)
        assert play.core.tracked == {} and play.disk == {}


def finished(number: int) -> Any:
    pod = a_pod(f"done{number}", f"job-{number}", restartPolicy="Never")
    return pod | {"status": {"phase": "Succeeded", "startTime": "2030-01-01T00:00:00Z"}}


def lines_executed(work: Callable[[], object]) -> int:
    """Return how many lines of Python run, those of a loop in each of its turns. A busy machine changes nothing."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_work_of_an_event_does_not_grow_with_the_pods_that_are_finished() -> None:
    def work_of_each_event(count: int) -> dict[str, int]:
        play = a_play(source="api").wanting(*map(finished, range(count)))
        play.later(120)
        play.want(a_pod("u1", "web"))
        assert len(play.core.tracked) == count + 1
        seen = RuntimePod(uid="done0", name="job-0", namespace="default", observed_at=play.wall + 1)
        events: tuple[Event, ...] = (
            RuntimeChanged(reachable=True, network_ready=False),
            VolumesFreshness(complete=True, stale=False),
            PodObserved(observation=seen),
            TimePassed(),
            PodDesired(uid="u2", source="api", pod=a_pod("u2", "other")),
        )
        return {type(event).__name__: lines_executed(partial(play.core.handle, event, play.wall)) for event in events}

    few, many = work_of_each_event(5), work_of_each_event(50)
    assert {kind: many[kind] / few[kind] for kind in few if many[kind] > 1.5 * few[kind]} == {}
