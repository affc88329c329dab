"""A resize begins with the status that another agent wrote, or with a record, also where their entries are odd."""

from typing import Any

import pytest

from services.podsync.core.pod.allocation import Allocation, allocation_of, with_allocation
from tests.unit.podsync.play import Play, Pod, a_container, a_pod
from tests.unit.podsync.pod.test_resize import LARGE, SMALL, events, resized, resources, sized, status


def shown_by(conditions: list[dict[str, Any]], resources: Any = SMALL) -> Pod:
    """A pod that lists LARGE and was admitted by another agent, with its status of one that has SMALL."""
    entry = {"name": "c", "resources": resources, "state": {"running": {}}, "containerID": "containerd://c001"}
    return sized(LARGE, 2) | {"status": {"phase": "Running", "conditions": conditions, "containerStatuses": [entry]}}


@pytest.mark.parametrize("kind", ["PodResizePending", "PodResizeInProgress"])
def test_a_resize_that_an_earlier_agent_had_not_done_is_done(kind: str) -> None:
    play = Play(source="api").wanting(shown_by([{"type": kind, "status": "True", "reason": "Deferred"}]))
    assert len(events(play, "ResizeStarted")) == len(events(play, "ResizeCompleted")) == 1
    assert status(play)["allocatedResources"] == LARGE["requests"]


def test_a_pod_of_an_earlier_agent_without_a_resize_has_what_it_lists() -> None:
    play = Play(source="api").wanting(shown_by([]))
    assert play.core.tracked["u1"].containers[0]["resources"] == LARGE and events(play) == []


@pytest.mark.parametrize("odd", [None, "much", {"requests": "1"}])
def test_a_status_with_odd_resources_is_ignored(odd: Any) -> None:
    play = Play(source="api").wanting(shown_by([{"type": "PodResizePending", "status": "True"}], odd))
    assert play.core.tracked["u1"].containers[0]["resources"] == LARGE and events(play) == []


def test_init_containers_and_the_pods_own_resources_are_allocated_too() -> None:
    def pod(resources: dict[str, Any]) -> Pod:
        init = [a_container("i", resources=resources, restartPolicy="Always"), a_container("j")]
        return a_pod(initContainers=init, containers=[a_container("c", image="busybox:2")], resources=resources)

    assert with_allocation(pod(LARGE), allocation_of(pod(SMALL))) == pod(SMALL)
    bare = a_pod(initContainers=[a_container("i", restartPolicy="Always"), a_container("j")])
    bare["spec"]["containers"] = pod(SMALL)["spec"]["containers"]
    assert with_allocation(bare, allocation_of(pod(SMALL))) == pod(SMALL)
    assert with_allocation(pod(SMALL), allocation_of(bare)) == bare


def test_the_sizes_of_volumes_in_memory_are_allocated_and_no_other() -> None:
    def pod(size: Any, medium: str = "Memory") -> Pod:
        limited = {"medium": medium, "sizeLimit": size} if size else {"medium": medium}
        pod = a_pod()
        pod["spec"]["volumes"] = [{"name": "fast", "emptyDir": limited}, {"name": "host", "hostPath": {"path": "/x"}}]
        return pod

    assert with_allocation(pod("8Mi"), allocation_of(pod("4Mi"))) == pod("4Mi")
    same = pod(8 << 20)
    assert with_allocation(same, allocation_of(pod("8Mi"))) is same
    for listed, held in ((pod("8Mi", ""), pod("4Mi", "")), (pod("8Mi"), pod(None)), (pod(None), pod("4Mi"))):
        assert with_allocation(listed, allocation_of(held)) is listed
    earlier = Allocation(containers=allocation_of(pod("4Mi")).containers)  # a record that knows no volumes
    assert with_allocation(listed := pod("8Mi"), earlier) is listed


WANTED = {"containers": {"c": LARGE}, "pod": {}}


@pytest.mark.parametrize(
    "broken",
    [
        {"pending_resize": {"generation": 2, "wanted": {**WANTED, "volumes": {"fast": "much"}}}},
        {"pending_resize": {"generation": "2", "wanted": WANTED}},
        {"pending_resize": {"generation": 2, "wanted": WANTED, "since": "now"}},
        {"pending_resize": {"generation": 2, "wanted": {"containers": {"c": 7}, "pod": {}}}},
        {"pending_resize": {"generation": 2, "wanted": {"containers": {"c": {"limits": 7}}, "pod": {}}}},
        {"allocation": {"containers": {"c": 7}, "pod": {}}},
        {"actuated": {"c": {"limits": 7}}},
        {"resize": {"generation": None}},
    ],
    ids=str,
)
def test_an_entry_of_a_record_that_has_another_type_is_left_out(broken: dict[str, Any]) -> None:
    play = resized()
    play.disk["u1"] |= broken
    play.start()
    play.want(sized(LARGE, 2))
    assert resources(play) == {"resources": LARGE, "allocated": LARGE["requests"]}
