"""What is written over the status the API server has: our fields are ours, those of other writers stay."""

from typing import Any

import pytest

from services.status.core.pod_status_merge import merged_status, status_patch

NOW = "2026-01-01T01:00:00Z"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
CONTAINERS = {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
GATE = {"type": "example.com/gate", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "hers"}
DISRUPTION = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": "x"}


def merged(api: Any, wanted: Any) -> Any:
    return merged_status(api, wanted, now=NOW)


def kinds(status: Any) -> list[str]:
    return [condition["type"] for condition in status["conditions"]]


def test_conditions_of_others_stay_and_ours_that_are_gone_go() -> None:
    api = {"conditions": [GATE, {"type": "PodResizePending", "status": "True"}, SCHEDULED]}
    wanted = {"conditions": [READY, SCHEDULED, {**GATE, "status": "False", "message": "as podsync saw it"}]}
    assert merged(api, wanted)["conditions"] == [GATE, READY, SCHEDULED]


def test_fields_of_others_stay() -> None:
    claims = [{"name": "gpu", "resourceClaimName": "web-gpu"}]
    api = {"resourceClaimStatuses": claims, "nominatedNodeName": "n1", "phase": "Pending", "reason": "old"}
    wanted = {"phase": "Running", "resourceClaimStatuses": [], "podIP": "10.0.0.1"}
    expected = {"resourceClaimStatuses": claims, "nominatedNodeName": "n1", "phase": "Running", "podIP": "10.0.0.1"}
    assert merged(api, wanted) == expected


def test_a_rejected_pod_shows_its_rejection_and_no_conditions_of_ours() -> None:
    rejection = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: …", "qosClass": "Burstable"}
    api = {"phase": "Pending", "qosClass": "Burstable", "conditions": [SCHEDULED]}
    assert merged(api, rejection) == {**rejection, "conditions": []}


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded"])
def test_a_terminal_phase_is_never_left_again(phase: str) -> None:
    api = {"phase": "Failed", "reason": "Evicted", "message": "why"}
    status = merged(api, {"phase": phase, "reason": "other", "conditions": [READY, CONTAINERS]})
    assert {key: status[key] for key in api} == api
    assert [(c["status"], c["reason"], c["lastTransitionTime"]) for c in status["conditions"]] == [
        ("False", "PodFailed", NOW)
    ] * 2


def test_a_terminal_pod_that_podsync_still_calls_ready_is_written_once() -> None:
    wanted = {"phase": "Running", "conditions": [READY, CONTAINERS]}
    api = {"phase": "Failed", "conditions": [READY]}
    written = merged(api, wanted)
    assert status_patch({"status": api}, wanted, now=NOW) is not None
    assert status_patch({"status": written}, wanted, now="2026-01-01T02:00:00Z") is None


def test_a_pod_that_succeeded_is_not_ready_because_it_completed() -> None:
    (ready,) = merged({}, {"phase": "Succeeded", "conditions": [READY]})["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")


def test_the_disruption_target_is_written_with_the_end_and_not_before() -> None:
    running = merged({"phase": "Running"}, {"phase": "Running", "conditions": [READY, DISRUPTION]})
    assert kinds(running) == ["Ready"]
    ended = merged({"phase": "Running"}, {"phase": "Failed", "conditions": [DISRUPTION]})
    assert ended["conditions"] == [{**DISRUPTION, "lastTransitionTime": NOW}]
    later = merged_status(ended, {"phase": "Failed", "conditions": [DISRUPTION]}, now="2026-01-01T02:00:00Z")
    assert later["conditions"] == ended["conditions"]


def test_a_disruption_target_of_a_controller_stays() -> None:
    assert kinds(merged({"conditions": [DISRUPTION]}, {"phase": "Running", "conditions": [READY]})) == [
        "Ready",
        "DisruptionTarget",
    ]


SHUTDOWN = DISRUPTION | {"message": "Pod was terminated in response to imminent node shutdown."}


def test_the_disruption_target_of_a_shutdown_is_shown_as_long_as_the_pod_is_stopped_for_it() -> None:
    stopped = merged({"phase": "Running", "conditions": [GATE]}, {"phase": "Running", "conditions": [READY, SHUTDOWN]})
    assert stopped["conditions"] == [GATE, READY, SHUTDOWN]
    assert status_patch({"status": stopped}, {"phase": "Running", "conditions": [READY, SHUTDOWN]}, now=NOW) is None
    again = merged(stopped, {"phase": "Running", "conditions": [READY]})
    assert again["conditions"] == [GATE, READY]
    ended = merged({"phase": "Failed", "conditions": [SHUTDOWN]}, {"phase": "Failed", "conditions": []})
    assert ended["conditions"] == [SHUTDOWN], "the pod ended by a Go kubelet's shutdown"


def test_what_is_set_once_stays() -> None:
    api = {"qosClass": "Guaranteed", "startTime": "2026-01-01T00:00:00Z", "observedGeneration": 3}
    wanted = {"qosClass": "Burstable", "startTime": "2026-01-01T00:00:09Z", "observedGeneration": 2}
    assert merged(api, wanted) == api
    earlier = {"startTime": "2025-12-31T23:59:59Z"}
    assert merged(api, earlier)["startTime"] == earlier["startTime"]


def test_repeating_the_scheduler_moves_no_transition_time() -> None:
    ours = {**SCHEDULED, "lastTransitionTime": "2026-01-01T00:00:07Z", "observedGeneration": 1}
    (condition,) = merged({"conditions": [SCHEDULED]}, {"conditions": [ours]})["conditions"]
    assert condition == {**SCHEDULED, "observedGeneration": 1}


def test_container_statuses_are_in_the_order_of_their_names_and_init_containers_in_their_own() -> None:
    statuses = [{"name": "b"}, {"name": "a"}]
    status = merged({}, {"containerStatuses": statuses, "initContainerStatuses": statuses})
    assert [s["name"] for s in status["containerStatuses"]] == ["a", "b"]
    assert [s["name"] for s in status["initContainerStatuses"]] == ["b", "a"]


def test_equal_but_for_nulls_and_the_order_of_conditions_is_no_change() -> None:
    api = {"phase": "Running", "conditions": [{**SCHEDULED, "lastProbeTime": None}, READY, GATE]}
    assert status_patch({"status": api}, {"phase": "Running", "conditions": [READY, SCHEDULED]}, now=NOW) is None


def test_the_patch_has_only_what_changed() -> None:
    api = {"phase": "Running", "conditions": [{**READY, "status": "False", "reason": "ContainersNotReady"}, SCHEDULED]}
    patch = status_patch({"status": api}, {"phase": "Running", "conditions": [READY, SCHEDULED]}, now=NOW)
    assert patch == {
        "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": None}],
    }


@pytest.mark.parametrize(
    "odd", [None, [], "x", {"conditions": "x"}, {"conditions": [1, {}, {"type": 1}]}, {"startTime": 5, "qosClass": {}}]
)
def test_an_odd_status_in_the_api_raises_nothing(odd: Any) -> None:
    patch = status_patch({"status": odd}, {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}, now=NOW)
    assert patch is not None and patch["phase"] == "Running"
