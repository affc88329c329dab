"""A resize of a running pod is refused: it keeps and shows the resources it was admitted with (pods.md 5.6)."""

from typing import Any

import pytest

from services.podsync.core.pod.allocation import RESIZE_MESSAGE, with_allocated_resources
from services.podsync.core.pod.saved_record import restore
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step

SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}
LARGE = {"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"cpu": "400m"}}


def sized(resources: dict[str, Any], generation: int = 1, **spec: Any) -> Pod:
    pod = a_pod(containers=[a_container("c", resources=resources)], **spec)
    pod["metadata"]["generation"] = generation
    return pod


def resized(**options: Any) -> Play:
    play = Play(source="api", **options)
    play.want(sized(SMALL))
    play.want(sized(LARGE, 2))
    return play


def status(play: Play) -> dict[str, Any]:
    return play.statuses["u1"].status


def pending(play: Play) -> dict[str, Any]:
    return next((c for c in status(play)["conditions"] if c["type"] == "PodResizePending"), {})


def refusals(play: Play) -> list[str]:
    return [event for event in play.events if "ResizeInfeasible" in event]


def test_the_container_goes_on_with_what_it_has_and_shows_that() -> None:
    play = resized()
    found = status(play)["containerStatuses"][0]
    assert found["resources"] == SMALL and found["allocatedResources"] == SMALL["requests"]
    assert status(play)["allocatedResources"] == SMALL["requests"]
    assert play.made == [("u1", "c", 0)] and play.stopped == []


def test_the_condition_shows_that_it_is_infeasible_and_why() -> None:
    condition = pending(resized())
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", "Infeasible", RESIZE_MESSAGE)
    assert condition["observedGeneration"] == 2 and condition["lastProbeTime"] == condition["lastTransitionTime"]
    assert status(resized())["observedGeneration"] == 2


def test_the_event_names_what_was_wanted_once_for_each_generation() -> None:
    play = resized()
    play.want(sized(LARGE, 2, priority=1))
    text = (
        'Warning ResizeInfeasible: Pod resize Infeasible: {"containers":[{"name":"c","resources":{"limits":'
        '{"cpu":"400m"},"requests":{"cpu":"300m","memory":"64Mi"}}}],"generation":2,"error":'
        '"In-place resize is not supported by this node."}'
    )
    assert refusals(play) == [text]
    play.want(sized(LARGE, 3))
    assert len(refusals(play)) == 2


def test_the_next_instance_and_what_the_node_counts_have_what_was_allocated() -> None:
    play = resized()
    play.exit("u1", 1)
    assert play.made == [("u1", "c", 0), ("u1", "c", 1)]
    assert play.core.records["u1"].containers[0]["resources"] == SMALL


def test_taken_back_it_is_pending_no_more() -> None:
    play = resized()
    play.want(sized(SMALL, 3))
    assert pending(play) == {}


def test_the_same_amount_in_other_words_is_no_resize() -> None:
    play = Play(source="api")
    play.want(sized(SMALL))
    play.want(sized({"requests": {"cpu": "0.1", "memory": "67108864"}, "limits": {"cpu": "200m"}}, 2))
    assert pending(play) == {} and refusals(play) == []


def test_after_a_restart_of_podsync_it_is_the_same_and_not_reported_again() -> None:
    play = resized()
    before = (status(play), refusals(play))
    assert restore(play.disk["u1"]).saved.refused_resize == {"generation": 2}
    play.start()
    play.run()
    assert (status(play), refusals(play)) == before


@pytest.mark.parametrize("step", every_step(40))
def test_a_kill_at_any_step_ends_in_the_same(step: int) -> None:
    play = Play(source="api", listed=True)
    play.want(sized(SMALL))
    play.kill_at = play.steps + step
    play.want(sized(LARGE, 2))
    play.later(3)
    assert status(play)["containerStatuses"][0]["allocatedResources"] == SMALL["requests"]
    assert pending(play) and play.made == [("u1", "c", 0)] and len(refusals(play)) <= 2


def test_a_pod_that_is_over_has_nothing_pending() -> None:
    play = Play(source="api")
    play.want(sized(SMALL, restartPolicy="Never"))
    play.want(sized(LARGE, 2, restartPolicy="Never"))
    play.exit("u1", 0)
    assert status(play)["phase"] == "Succeeded" and pending(play) == {}


def test_a_pod_that_is_not_admitted_yet_takes_the_newest() -> None:
    play = Play(source="api", joins_cluster=True)
    play.want(sized(SMALL))
    play.want(sized(LARGE, 2))
    assert play.core.records["u1"].containers[0]["resources"] == LARGE


def shown_by(conditions: list[dict[str, Any]], resources: Any = SMALL) -> Pod:
    """A pod with LARGE in its spec that another agent admitted with SMALL, as its status shows."""
    entry = {"name": "c", "resources": resources, "state": {"running": {}}, "containerID": "containerd://c001"}
    return sized(LARGE, 2) | {"status": {"phase": "Running", "conditions": conditions, "containerStatuses": [entry]}}


@pytest.mark.parametrize("kind", ["PodResizePending", "PodResizeInProgress"])
def test_a_resize_that_an_earlier_agent_had_not_done_is_refused(kind: str) -> None:
    play = Play(source="api")
    play.want(shown_by([{"type": kind, "status": "True", "reason": "Deferred"}]))
    assert play.core.records["u1"].containers[0]["resources"] == SMALL
    assert pending(play)["reason"] == "Infeasible"
    assert status(play)["allocatedResources"] == SMALL["requests"]


def test_a_pod_of_an_earlier_agent_without_a_resize_has_the_resources_of_its_spec() -> None:
    play = Play(source="api")
    play.want(shown_by([]))
    assert play.core.records["u1"].containers[0]["resources"] == LARGE and pending(play) == {}


@pytest.mark.parametrize("odd", [None, "much", {"requests": "1"}])
def test_a_status_with_odd_resources_is_not_gone_by(odd: Any) -> None:
    play = Play(source="api")
    play.want(shown_by([{"type": "PodResizePending", "status": "True"}], odd))
    assert play.core.records["u1"].containers[0]["resources"] == LARGE and pending(play) == {}


def test_init_containers_and_the_pods_own_resources_are_kept_too() -> None:
    def pod(resources: dict[str, Any]) -> Pod:
        init = [a_container("i", resources=resources, restartPolicy="Always"), a_container("j")]
        return a_pod(initContainers=init, containers=[a_container("c", image="busybox:2")], resources=resources)

    allocated = with_allocated_resources(pod(LARGE), pod(SMALL))
    assert allocated == pod(SMALL)
    assert with_allocated_resources(pod({}), pod(SMALL)) == pod(SMALL)
    assert with_allocated_resources(pod(SMALL), pod({})) == pod({})
