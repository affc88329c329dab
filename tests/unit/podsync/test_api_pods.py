"""What podsync does with pods of the API server, tests of the core alone."""

from typing import Any

from bus.messages.pleg import ProbeResults
from bus.messages.podsync import PodState
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.pod.events import NodeChanged, PodDesired, PodUndesired, ProbesChanged
from shared.model.probes import ProbeResult
from tests.unit.podsync.play import Play, a_pod

DELETION = {"deletionTimestamp": "2030-01-01T00:00:30Z", "deletionGracePeriodSeconds": 7}


def an_api_pod(uid: str = "u1", name: str = "web", status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    pod = a_pod(uid, name, **spec)
    pod["metadata"] |= {"annotations": {"kubernetes.io/config.source": "api"}, "resourceVersion": "7", "generation": 1}
    return pod | {"status": status if status is not None else {"phase": "Pending"}}


def changed(pod: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], **metadata}}


def a_play(**options: Any) -> Play:
    return Play(source="api", **options)


def status_of(play: Play, uid: str = "u1") -> dict[str, Any]:
    return play.statuses[uid].status


def condition(play: Play, kind: str, uid: str = "u1") -> dict[str, Any]:
    return next((c for c in status_of(play, uid)["conditions"] if c["type"] == kind), {})


class TestBaseline:
    def test_what_the_api_server_knows_goes_on(self) -> None:
        given = {
            "phase": "Running",
            "startTime": "2029-01-01T00:00:00Z",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2029-01-01T00:00:01Z"},
                {"type": "example.com/mine", "status": "True", "lastTransitionTime": "2029-01-01T00:00:02Z"},
            ],
        }
        play = a_play().wanting(an_api_pod(status=given))
        assert status_of(play)["startTime"] == "2029-01-01T00:00:00Z"
        assert condition(play, "PodScheduled")["lastTransitionTime"] == "2029-01-01T00:00:01Z"
        assert condition(play, "example.com/mine")["lastTransitionTime"] == "2029-01-01T00:00:02Z"

    def test_our_own_write_coming_back_is_no_news(self) -> None:
        play = a_play()
        pod = an_api_pod()
        play.want(pod)
        saved, calls = dict(play.disk["u1"]), len(play.calls)
        play.want({**changed(pod, resourceVersion="8"), "status": status_of(play)})
        assert (play.disk["u1"], len(play.calls)) == (saved, calls)

    def test_a_pod_that_has_ended_is_never_started_again(self) -> None:
        play = a_play().wanting(an_api_pod(status={"phase": "Succeeded"}))
        assert play.made == []
        assert play.core.tracked["u1"].saved.state is PodState.FINISHED
        assert status_of(play)["phase"] == "Succeeded"

    def test_a_pod_declared_failed_by_another_client_ends(self) -> None:
        play = a_play()
        pod = an_api_pod()
        play.want(pod)
        play.want({**pod, "status": {"phase": "Failed"}})
        assert play.running("u1") == []
        assert play.core.tracked["u1"].saved.state is PodState.FINISHED


class TestDeletion:
    def test_a_deleted_pod_ends_within_its_grace_and_stays_known_until_its_object_is_gone(self) -> None:
        play = a_play()
        pod = an_api_pod()
        play.want(pod)
        play.want(changed(pod, **DELETION))
        assert play.stops == [7]
        assert play.core.tracked["u1"].saved.state is PodState.FINISHED
        assert play.published["u1"].admitted.finished
        assert status_of(play)["phase"] == "Succeeded"  # its process ended with 0
        play.later(600)
        assert play.published["u1"].admitted.finished, "its end must be known until the API object is deleted"
        assert play.sandboxes["u1"] == []
        play.drop("u1")
        assert "u1" not in play.core.tracked
        assert play.disk == {}

    def test_a_forced_deletion_takes_the_grace_of_the_spec(self) -> None:
        play = a_play().wanting(an_api_pod())
        play.handle(PodUndesired(uid="u1"))
        play.wanted.clear()
        play.run()
        assert play.stops == [30]

    def test_a_pod_seen_first_while_it_is_being_deleted_is_not_started(self) -> None:
        play = a_play().wanting(changed(an_api_pod(), **DELETION))
        assert play.made == []
        assert play.published["u1"].admitted.finished

    def test_a_rejected_pod_that_is_deleted_stays_finished_until_its_object_is_gone(self) -> None:
        play = a_play()
        pod = an_api_pod(os={"name": "windows"})
        play.want(pod)
        play.want(changed(pod, **DELETION))
        assert play.published["u1"].admitted.finished
        play.drop("u1")
        assert "u1" not in play.core.tracked


class TestTerminalPhase:
    def test_it_is_shown_only_once_nothing_can_run_any_more(self) -> None:
        play = a_play().wanting(an_api_pod(restartPolicy="Never"))
        seen: list[tuple[str, str]] = []
        for call in ("KillPod", "ReleasePod"):
            play.fail_always[call] = ("Unavailable", "away")
        play.exit("u1", 0)
        seen.append((play.published["u1"].admitted.state, status_of(play)["phase"]))
        assert "terminated" in status_of(play)["containerStatuses"][0]["state"]
        assert condition(play, "Ready")["reason"] == "PodCompleted"
        play.fail_always.clear()
        play.later(60)
        seen.append((play.published["u1"].admitted.state, status_of(play)["phase"]))
        assert seen == [("terminating", "Running"), ("finished", "Succeeded")]

    def test_it_is_remembered_over_a_crash_in_between(self) -> None:
        play = a_play().wanting(an_api_pod(restartPolicy="Never"))
        play.fail_always["KillPod"] = ("Unavailable", "away")
        play.exit("u1", 3)
        play.fail_always.clear()
        play.restart()
        play.later(60)
        assert status_of(play)["phase"] == "Failed"

    def test_the_deadline_is_counted_from_the_start_time(self) -> None:
        play = a_play().wanting(an_api_pod(activeDeadlineSeconds=20, terminationGracePeriodSeconds=1))
        play.later(19)
        assert play.running("u1")
        play.later(2)
        assert play.running("u1") == []
        assert {k: status_of(play)[k] for k in ("phase", "reason", "message")} == {
            "phase": "Failed",
            "reason": "DeadlineExceeded",
            "message": "Pod was active on the node longer than the specified deadline",
        }
        assert sum(event.startswith("Normal DeadlineExceeded") for event in play.events) == 1


PROBE = {"httpGet": {"path": "/", "port": 80}}


def probed(play: Play, **results: str) -> None:
    instance = next(c for c in play.look("u1").containers if c.name == "c")
    found = ProbeResults(pod_uid="u1", container="c", **{kind: ProbeResult(result) for kind, result in results.items()})
    play.happen(ProbesChanged(container_id=instance.id, pod_uid="u1", results=found))


def with_probe(kind: str, **more: Any) -> dict[str, Any]:
    pod = an_api_pod()
    pod["spec"]["containers"][0][f"{kind}Probe"] = {**PROBE, **more}
    return pod


class TestProbes:
    def test_a_container_with_a_readiness_probe_is_ready_after_its_success_only(self) -> None:
        play = a_play().wanting(with_probe("readiness"))
        assert condition(play, "Ready")["status"] == "False"
        probed(play, readiness="success")
        assert condition(play, "Ready")["status"] == "True"
        probed(play, readiness="failure")
        assert condition(play, "Ready")["reason"] == "ContainersNotReady"

    def test_no_result_is_no_change_neither_for_a_new_pleg_nor_for_a_new_podsync(self) -> None:
        play = a_play().wanting(with_probe("readiness"))
        probed(play, readiness="success")
        before = status_of(play)
        instance = play.look("u1").containers[0].id
        play.happen(ProbesChanged(container_id=instance, pod_uid="u1", results=None))
        assert status_of(play) == before
        play.restart()
        assert status_of(play) == before

    def test_a_container_has_started_once_its_startup_probe_succeeds(self) -> None:
        play = a_play().wanting(with_probe("startup"))
        assert status_of(play)["containerStatuses"][0]["started"] is False
        probed(play, startup="success")
        assert status_of(play)["containerStatuses"][0]["started"] is True
        assert condition(play, "Ready")["status"] == "True"

    def test_a_failed_liveness_probe_restarts_the_container_within_the_grace_of_the_probe(self) -> None:
        play = a_play().wanting(with_probe("liveness", terminationGracePeriodSeconds=4))
        probed(play, liveness="failure")
        assert "Normal Killing: Container c failed liveness probe, will be restarted" in play.events
        assert (play.stops, play.running("u1")) == ([4], [("c", 1)])
        probed(play, liveness="success")
        assert play.running("u1") == [("c", 1)]

    def test_a_failed_liveness_probe_ends_a_pod_that_never_restarts(self) -> None:
        play = a_play()
        pod = with_probe("liveness")
        pod["spec"]["restartPolicy"] = "Never"
        play.want(pod)
        probed(play, liveness="failure")
        assert "Normal Killing: Stopping container c" in play.events, "nothing is left to run: the whole pod ends"
        assert play.running("u1") == []
        assert status_of(play)["phase"] in ("Succeeded", "Failed")
        assert len(play.made) == 1

    def test_a_result_of_an_earlier_instance_kills_nothing(self) -> None:
        play = a_play().wanting(with_probe("liveness"))
        stale = ProbeResults(pod_uid="u1", container="c", liveness=ProbeResult.FAILURE)
        play.happen(ProbesChanged(container_id="another", pod_uid="u1", results=stale))
        assert play.running("u1") == [("c", 0)]


def node(**labels: str) -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": "192.0.2.9"}, {"type": "Hostname", "address": "n"}]
    return {"metadata": {"name": "n", "labels": labels}, "status": {"addresses": addresses}}


class TestNode:
    def test_a_refusal_for_labels_alone_is_checked_against_the_node_itself(self) -> None:
        play = a_play(node=node(disk="ssd"))
        play.handle(NodeChanged(node=node()))
        play.want(an_api_pod(nodeSelector={"disk": "ssd"}))
        assert play.log[0] == "FetchNode"
        assert play.running("u1") == [("c", 0)]

    def test_and_counts_when_the_node_has_the_same(self) -> None:
        play = a_play(node=node())
        play.handle(NodeChanged(node=node()))
        play.want(an_api_pod(nodeSelector={"disk": "ssd"}))
        status = status_of(play)
        assert (status["phase"], status["reason"]) == ("Failed", "NodeAffinity")
        message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        assert status["message"] == f"Pod was rejected: {message}"
        assert play.events == [f"Warning NodeAffinity: {message}"]

    def test_a_crash_while_it_is_read_leaves_no_verdict_behind(self) -> None:
        play = a_play(node=node(), kill_at=2)
        play.handle(NodeChanged(node=node()))
        play.want(an_api_pod(nodeSelector={"disk": "ssd"}))
        assert play.made == []
        assert status_of(play)["reason"] == "NodeAffinity"

    def test_the_addresses_of_the_node_are_the_pods_host_addresses(self) -> None:
        play = a_play()
        play.handle(NodeChanged(node=node()))
        play.want(an_api_pod())
        assert status_of(play)["hostIPs"] == [{"ip": "192.0.2.9"}]


def sized(uid: str, cpu: str, **spec: Any) -> dict[str, Any]:
    pod = an_api_pod(uid, f"pod-{uid}", **spec)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return pod


class TestPreemption:
    def test_a_critical_pod_starts_once_its_victim_has_stopped(self) -> None:
        play = a_play()
        play.facts = MachineFacts(node_name="n", allocatable={"cpu": "2", "pods": "10"})
        play.start()
        play.want(sized("small", "500m"))
        play.want(sized("large", "1500m"))
        play.fail_always["KillPod"] = ("Unavailable", "away")
        play.want(sized("vital", "1", priority=2_000_000_000))
        assert play.running("vital") == []
        play.fail_always.clear()
        play.later(60)
        assert play.running("vital") == [("c", 0)]
        assert play.running("small") == [("c", 0)]
        assert (status_of(play, "large")["phase"], status_of(play, "large")["reason"]) == ("Failed", "Preempting")
        assert condition(play, "DisruptionTarget", "large")["reason"] == "TerminationByKubelet"
        assert "Warning Preempting: Preempted in order to admit critical pod" in play.events

    def test_an_ordinary_pod_that_does_not_fit_is_rejected(self) -> None:
        play = a_play()
        play.facts = MachineFacts(node_name="n", allocatable={"cpu": "2", "pods": "10"})
        play.start()
        play.want(sized("first", "1500m"))
        play.want(sized("second", "1"))
        text = "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"
        assert status_of(play, "second")["message"] == f"Pod was rejected: {text}"
        play.restart()
        assert play.running("first") == [("c", 0)]


def test_a_pod_is_taken_on_again_only_under_a_new_uid() -> None:
    play = a_play()
    pod = an_api_pod()
    play.want(pod)
    play.want(changed(pod, **DELETION))
    play.happen(PodDesired(uid="u1", source="api", pod=changed(pod, **DELETION)))
    assert len(play.made) == 1
