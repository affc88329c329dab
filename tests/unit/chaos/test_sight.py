"""What counts as a flap, a Ready and a gap of the lease, for one client of the API server."""

from typing import Any

from tests.chaos.sight import Sight


def pod(ready: bool, *, uid: str = "u", deleted: bool = False, mirror: bool = False, restarts: int = 0) -> Any:
    metadata: dict[str, Any] = {"name": "web", "uid": uid}
    if deleted:
        metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    if mirror:
        metadata["annotations"] = {"kubernetes.io/config.mirror": "h"}
    conditions = [{"type": "Ready", "status": str(ready), "reason": "Why", "message": "so"}]
    statuses = [{"name": "main", "restartCount": restarts}]
    return {"metadata": metadata, "status": {"conditions": conditions, "containerStatuses": statuses}}


def node(status: str) -> Any:
    return {"status": {"conditions": [{"type": "Ready", "status": status, "reason": "R", "message": "m"}]}}


def test_the_first_ready_counts() -> None:
    sight = Sight()
    sight.pod("ADDED", pod(False), 1.0)
    sight.pod("MODIFIED", pod(True), 2.0)
    sight.pod("MODIFIED", pod(True), 3.0)
    assert sight.ready_at == {"u": 2.0}
    assert sight.pod_flaps == []


def test_a_ready_taken_back_is_a_flap_but_not_of_a_pod_that_ends_or_of_another_one() -> None:
    sight = Sight()
    sight.pod("MODIFIED", pod(True), 1.0)
    sight.pod("MODIFIED", pod(False), 2.0)
    assert sight.pod_flaps == ["pod web was Ready and is not: Why so"]
    sight.begin()
    sight.pod("MODIFIED", pod(True), 3.0)
    sight.pod("MODIFIED", pod(False, deleted=True), 4.0)
    sight.pod("DELETED", pod(False, deleted=True), 5.0)
    sight.pod("ADDED", pod(False, uid="v"), 6.0)
    assert sight.pod_flaps == []


def test_a_flap_across_a_broken_watch_is_seen_in_the_list_after_it() -> None:
    sight = Sight()
    sight.pod("MODIFIED", pod(True), 1.0)
    sight.listed([pod(False)], 2.0)
    assert len(sight.pod_flaps) == 1
    sight.listed([], 3.0)
    assert sight.pods == {}


def test_a_mirror_pod_that_is_made_again_is_a_flap() -> None:
    sight = Sight()
    sight.pod("MODIFIED", pod(True, mirror=True), 1.0)
    sight.pod("DELETED", pod(True, mirror=True), 2.0)
    assert sight.pod_flaps == ["mirror pod web vanished"]


def test_a_node_flaps_when_it_was_ready() -> None:
    sight = Sight()
    sight.node(node("False"))
    sight.node(node("True"))
    sight.node(node("True"))
    assert sight.node_flaps == []
    sight.node(node("Unknown"))
    sight.node(node("Unknown"))
    assert sight.node_flaps == ["node Unknown: R m"]


def test_the_lease_gap_is_the_longest_time_between_renewals_up_to_now() -> None:
    sight = Sight()
    assert sight.lease_gap(1.0) is None
    sight.lease("a", 1.0)
    sight.lease("a", 2.5)  # seen again, not renewed
    sight.lease("b", 3.0)
    assert sight.lease_gap(3.5) == 2.0
    assert sight.lease_gap(6.0) == 3.0
    sight.begin()
    sight.lease("c", 4.0)
    assert sight.lease_gap(4.1) == 1.0


def test_restarts_are_counted_by_container() -> None:
    sight = Sight()
    sight.pod("MODIFIED", pod(True, restarts=2), 1.0)
    assert sight.restarts() == ["web/main 2"]
    assert sight.named("web") is not None
