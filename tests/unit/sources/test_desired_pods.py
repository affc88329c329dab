"""The merge of complete sets into changes, in the order in which they must be published."""

from typing import Any

import pytest

from services.sources.core.desired_pods import (
    DesiredPods,
    Duplicate,
    MergeChange,
    PodDesired,
    PodRemoved,
    StatusChanged,
)
from services.sources.core.manifest_records import decode, encode
from shared.model.objects import Object, annotations


def pod(uid: str, name: str = "", image: str = "a") -> Object:
    return {"metadata": {"uid": uid, "name": name or uid, "namespace": "default"}, "spec": {"image": image}}


def summary(changes: list[MergeChange]) -> list[str]:
    texts = []
    for change in changes:
        match change:
            case PodRemoved(uid):
                texts.append(f"removed {uid}")
            case PodDesired(desired, added):
                texts.append(f"{'added' if added else 'changed'} {desired.uid}")
            case StatusChanged(desired):
                texts.append(f"status {desired.uid}")
            case Duplicate():
                texts.append("duplicate")
    return texts


def test_removals_come_before_additions_and_those_before_changes() -> None:
    desired = DesiredPods(frozenset({"file"}))
    desired.merge("file", [pod("old", "web"), pod("kept")], seen="t0")
    changes = desired.merge("file", [pod("kept", image="b"), pod("new", "web")], seen="t1")
    assert summary(changes) == ["removed old", "added new", "changed kept"]


def test_an_unchanged_set_changes_nothing() -> None:
    desired = DesiredPods(frozenset({"file"}))
    desired.merge("file", [pod("a")], seen="t0")
    assert desired.merge("file", [pod("a")], seen="t1") == []


def test_the_first_seen_time_never_changes_for_a_uid() -> None:
    desired = DesiredPods(frozenset({"file"}))
    desired.merge("file", [pod("a")], seen="t0")
    (change,) = desired.merge("file", [pod("a", image="b")], seen="t1")
    assert isinstance(change, PodDesired)
    assert annotations(change.pod.pod) == {"kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "t0"}


def test_the_first_seen_time_of_an_earlier_process_is_kept() -> None:
    desired = DesiredPods(frozenset({"file"}))
    desired.remember("a", "long ago")
    desired.remember("b", "")
    desired.merge("file", [pod("a"), pod("b")], seen="now")
    a, b = desired.pod("a", "file"), desired.pod("b", "file")
    assert a is not None and b is not None
    assert annotations(a)["kubernetes.io/config.seen"] == "long ago"
    assert annotations(b)["kubernetes.io/config.seen"] == "now"


def test_a_uid_that_was_removed_and_comes_back_has_a_new_first_seen_time() -> None:
    desired = DesiredPods(frozenset({"file"}))
    desired.merge("file", [pod("a")], seen="t0")
    desired.merge("file", [], seen="t1")
    desired.merge("file", [pod("a")], seen="t2")
    assert annotations(desired.pod("a", "file") or {})["kubernetes.io/config.seen"] == "t2"


def test_a_second_pod_of_one_name_in_an_update_is_dropped_with_the_kubelets_words() -> None:
    desired = DesiredPods(frozenset({"http"}))
    changes = desired.merge("http", [pod("a", "web"), pod("b", "web")], seen="t0")
    assert summary(changes) == ["added a", "duplicate"]
    assert isinstance(changes[1], Duplicate)
    expected = 'Error validating pod web_default(b) from http due to duplicate pod name "web", ignoring'
    assert changes[1].message == expected


def test_one_source_never_removes_the_pods_of_another() -> None:
    desired = DesiredPods(frozenset({"file", "http"}))
    desired.merge("file", [pod("a")], seen="t0")
    assert summary(desired.merge("http", [pod("b")], seen="t0")) == ["added b"]
    assert summary(desired.merge("http", [], seen="t0")) == ["removed b"]


def test_the_set_is_complete_only_once_all_pods_of_each_source_are_published() -> None:
    desired = DesiredPods(frozenset({"file", "api"}))
    desired.merge("file", [pod("a")], seen="t0")
    desired.note_complete("file")
    desired.merge("api", [pod("b")], seen="t0")
    before = desired.complete  # merged, but not published yet
    desired.note_complete("api")
    assert (before, desired.complete) == (False, True)


def test_times_of_an_earlier_process_are_kept_for_the_source_that_reports_last() -> None:
    desired = DesiredPods(frozenset({"file", "api"}))
    desired.remember("b", "long ago")
    desired.merge("file", [pod("a")], seen="now")
    desired.note_complete("file")
    desired.merge("api", [pod("b")], seen="now")
    assert annotations(desired.pod("b", "api") or {})["kubernetes.io/config.seen"] == "long ago"


def test_a_static_pod_and_an_api_pod_of_one_name_are_both_wanted() -> None:
    desired = DesiredPods(frozenset({"file", "api"}))
    desired.merge("file", [pod("a", "web")], seen="t0")
    assert summary(desired.merge("api", [pod("b", "web")], seen="t0")) == ["added b"]


def test_a_uid_of_another_source_is_not_taken_over_and_that_is_reported_once() -> None:
    desired = DesiredPods(frozenset({"file", "api"}))
    desired.merge("file", [pod("a", "web")], seen="t0")
    (change,) = desired.merge("api", [pod("a", "other")], seen="t0")
    assert isinstance(change, Duplicate) and "due to duplicate pod UID" in change.message
    assert desired.merge("api", [pod("a", "other")], seen="t1") == []
    assert desired.merge("api", [], seen="t1") == []
    assert desired.pod("a", "file") is not None


def test_metadata_that_means_nothing_to_a_node_changes_nothing() -> None:
    desired = DesiredPods(frozenset({"api"}))
    desired.merge("api", [pod("a")], seen="t0")
    touched = pod("a")
    touched["metadata"] |= {"resourceVersion": "7", "finalizers": ["x"], "ownerReferences": []}
    assert desired.merge("api", [touched], seen="t1") == []
    deleted = {**touched, "metadata": {**touched["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}}
    assert summary(desired.merge("api", [deleted], seen="t1")) == ["changed a"]


def test_without_any_source_the_set_is_complete_at_once() -> None:
    assert DesiredPods(frozenset()).complete


def test_a_record_comes_back_only_for_the_same_node_and_in_a_known_form() -> None:
    stored = {**pod("a"), "spec": {"nodeName": "n1"}}
    record = encode(stored, "/m/first")
    assert decode(record, "/m/now", node_name="n1") == (stored, "/m/first")
    assert decode(record, "/m/now", node_name="n2") is None
    assert decode({**record, "version": 0}, "/m/now", node_name="n1") is None
    assert decode({"version": 1, "pod": "nonsense"}, "/m/now", node_name="n1") is None


def test_a_record_of_a_version_that_noted_no_origin_is_of_its_own_file() -> None:
    stored = {**pod("a"), "spec": {"nodeName": "n1"}}
    assert decode({"version": 1, "pod": stored}, "/m/now", node_name="n1") == (stored, "/m/now")


def api_pod(**status: Any) -> Object:
    gates = {"readinessGates": [{"conditionType": "Ready"}]} if status.pop("gated", False) else {}
    return {**pod("a"), "spec": {"image": "a", **gates}, "status": status}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"phase": "Pending"}, {"phase": "Running", "podIP": "10.0.0.1"}, "status a"),
        ({}, {"conditions": [{"type": "Ready", "status": "True"}]}, "status a"),
        ({"phase": "Running"}, {"phase": "Running"}, ""),
        ({"phase": "Running"}, {"phase": "Failed"}, "changed a"),
        ({}, {"conditions": [{"type": "example.com/gate", "status": "True"}]}, "changed a"),
        ({"gated": True}, {"gated": True, "conditions": [{"type": "Ready", "status": "True"}]}, "changed a"),
        ({}, {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu"}]}, "changed a"),
        ({}, {"extendedResourceClaimStatus": {"resourceClaimName": "a-ext"}}, "changed a"),
    ],
)
def test_of_the_status_only_an_end_conditions_of_others_and_names_of_claims_change_the_pod(
    before: Object, after: Object, expected: str
) -> None:
    desired = DesiredPods(frozenset({"api"}))
    desired.merge("api", [api_pod(**before)], seen="t0")
    assert summary(desired.merge("api", [api_pod(**after)], seen="t1")) == ([expected] if expected else [])
    assert desired.pod("a", "api") is not None


def test_a_status_of_odd_shape_is_no_reason_to_fail() -> None:
    desired = DesiredPods(frozenset({"api"}))
    desired.merge("api", [{**pod("a"), "status": None}], seen="t0")
    assert summary(desired.merge("api", [{**pod("a"), "status": {"conditions": "?"}}], seen="t1")) == ["status a"]
