"""What the API server lists and changes, understood or not: which pods are to run, which are mirrors, which stay."""

import copy
import itertools
from typing import Any

import pytest

from services.sources.core.api_pods import ApiPods
from shared.model import objects

Pod = dict[str, Any]


def pod(name: str, uid: str = "", node: str = "node1", **metadata: Any) -> Pod:
    identity = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "busybox:1"}]}
    return {"metadata": identity | metadata, "spec": spec, "status": {"phase": "Pending"}}


def spec_with(**more: Any) -> Pod:
    """Of a pod that is sound but for this."""
    return {"spec": {"nodeName": "node1", "containers": [{"name": "main"}], **more}}


def listed(*items: Any) -> ApiPods:
    pods = ApiPods("node1")
    pods.replace(list(items))
    return pods


def uids(pods: ApiPods) -> list[str]:
    return [objects.uid(found) for found in pods.to_run]


ODD: list[Any] = [
    None,
    "text",
    [],
    {},
    {"metadata": None, "spec": None},
    {"metadata": {"name": 7}},
    {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"nodeName": "node1"}},
    {"metadata": {"name": "odd", "namespace": "default", "uid": "../../etc"}, "spec": pod("x")["spec"]},
    pod("odd") | {"spec": {"nodeName": "node1", "containers": {}}},
    pod("odd") | {"spec": {"nodeName": "node1", "containers": [{"image": "unnamed"}]}},
    pod("odd") | {"spec": {"containers": [{"name": "main"}]}},
    pod("odd") | spec_with(initContainers=[{"image": "unnamed"}]),
    pod("odd") | spec_with(ephemeralContainers=[{"name": "", "image": "unnamed"}]),
    pod("odd") | spec_with(containers=[{"name": "main", "volumeMounts": [{"mountPath": "/of/nothing"}]}]),
    pod("odd") | spec_with(initContainers=[{"name": "i", "volumeMounts": [{"name": "nowhere"}]}]),
    pod("odd") | spec_with(volumes=[{"emptyDir": {}}]),
    pod("odd") | spec_with(securityContext={"sysctls": [{"value": "1"}]}),
    pod("odd") | {"status": []},
    pod("odd", annotations={"a": 1}),
    pod("odd", annotations=[]),
]


@pytest.mark.parametrize("odd", ODD, ids=[str(index) for index in range(len(ODD))])
def test_an_odd_object_is_left_out_logged_once_and_keeps_the_list_incomplete(odd: Any) -> None:
    pods = listed(pod("web"), odd)
    pods.replace([odd, pod("web")])
    assert uids(pods) == ["uid-web"]
    assert not pods.complete
    assert len(pods.notices) == 1 and "\n" not in pods.notices[0]


def test_a_change_that_is_not_understood_takes_no_other_pod_with_it(subtests: pytest.Subtests) -> None:
    for odd, kind in itertools.product(ODD, ("ADDED", "MODIFIED", "DELETED")):
        with subtests.test(f"{kind} {odd!r:.80}"):
            pods = listed(pod("web"))
            pods.change(kind, odd)
            assert uids(pods) == ["uid-web"]


def test_a_known_pod_that_becomes_odd_stays_as_it_was_until_it_is_understood_again() -> None:
    pods = listed(pod("web"))
    broken = pod("web") | {"spec": {"nodeName": "node1", "containers": "none"}}
    pods.change("MODIFIED", broken)
    after_change = pods.to_run
    pods.replace([broken])
    for (kept,) in (after_change, pods.to_run):
        assert kept["spec"]["containers"][0]["image"] == "busybox:1"
    assert "it stays as it was known" in pods.notices[0] and len(pods.notices) == 1
    pods.change("MODIFIED", pod("web", labels={"a": "b"}))
    assert pods.complete and pods.to_run[0]["metadata"]["labels"] == {"a": "b"}


def test_an_odd_object_without_a_name_may_be_any_of_those_that_seem_to_be_gone() -> None:
    pods = listed(pod("web"), pod("db"))
    pods.replace([pod("db"), {"metadata": {}}])
    assert sorted(uids(pods)) == ["uid-db", "uid-web"]
    pods.replace([pod("db")])
    assert uids(pods) == ["uid-db"]


def test_a_known_odd_pod_may_be_deleted() -> None:
    pods = listed(pod("web"))
    pods.change("DELETED", {"metadata": {"name": "web", "namespace": "default"}})
    assert uids(pods) == [] and pods.complete


def test_the_deletion_of_an_older_pod_of_the_same_name_is_old_news() -> None:
    pods = listed(pod("web", "new"))
    pods.change("DELETED", pod("web", "old"))
    assert uids(pods) == ["new"]


def test_a_new_pod_under_a_known_name_replaces_the_old_one() -> None:
    pods = listed(pod("web", "old"))
    pods.change("ADDED", pod("web", "new"))
    assert uids(pods) == ["new"]


def test_a_pod_bound_to_another_node_is_not_ours_any_more() -> None:
    pods = listed(pod("web"), pod("db"))
    pods.change("MODIFIED", pod("web", node="node2"))
    pods.replace([pod("db"), pod("web", node="node2")])
    assert uids(pods) == ["uid-db"] and pods.complete
    assert pods.notices[0] == "pod web_default(uid-web) is bound to node node2 and not to this one"


def test_mirror_pods_are_kept_apart() -> None:
    mirror = pod("static-node1", "m1", annotations={"kubernetes.io/config.mirror": "hash"})
    pods = listed(pod("web"), mirror)
    assert uids(pods) == ["uid-web"]
    (key,) = pods.mirrors
    found = pods.mirrors[key]
    assert (key, found.uid, found.config_hash) == ("static-node1_default", "m1", "hash")


def test_a_pod_is_defaulted_stripped_and_otherwise_left_as_it_came() -> None:
    raw = pod("web", managedFields=[{"manager": "kubectl"}], annotations={"big": "x" * 2**20})
    raw["spec"] |= {"fromTheFuture": {"a": [1]}, "volumes": [{"name": "v", "holographic": {"depth": 3}}, {"name": "e"}]}
    (read,) = listed(raw).to_run
    assert "managedFields" not in read["metadata"] and "managedFields" in raw["metadata"]
    assert len(read["metadata"]["annotations"]["big"]) == 2**20
    assert read["spec"]["fromTheFuture"] == {"a": [1]}
    assert read["spec"]["terminationGracePeriodSeconds"] == 30
    assert read["spec"]["volumes"] == [{"name": "v", "holographic": {"depth": 3}}, {"name": "e", "emptyDir": {}}]


@pytest.mark.parametrize("value", ["checkpoint", {"name": "checkpoint", "options": {}}])
def test_a_field_of_a_later_release_makes_no_pod_unreadable_whatever_its_type_becomes(value: Any) -> None:
    pods = listed(pod("a"), pod("b") | spec_with(restoreFrom=value))
    assert pods.complete and uids(pods) == ["uid-a", "uid-b"]
    assert pods.to_run[1]["spec"]["restoreFrom"] == value


def test_a_change_of_the_status_alone_keeps_the_spec_that_was_read() -> None:
    pods = listed(pod("web"))
    (before,) = pods.to_run
    shown = {**before, "spec": copy.deepcopy(before["spec"]), "status": {"phase": "Running"}}
    pods.change("MODIFIED", shown)
    (after,) = pods.to_run
    assert after["spec"] is before["spec"] and after["status"] == {"phase": "Running"}


def test_a_changed_spec_is_read_again_and_a_bad_one_leaves_the_pod_as_it_was() -> None:
    pods = listed(pod("web"))
    changed = pod("web")
    changed["spec"]["containers"][0]["image"] = "busybox:2"
    pods.change("MODIFIED", changed)
    (after,) = pods.to_run
    assert after["spec"]["containers"][0]["image"] == "busybox:2" and after["spec"]["dnsPolicy"] == "ClusterFirst"
    pods.change("MODIFIED", pod("web") | {"spec": {**after["spec"], "containers": [{"name": "main", "image": 7}]}})
    assert pods.to_run == [after] and not pods.complete


@pytest.mark.parametrize("odd", [{"status": []}, {"metadata": pod("web", labels={"a": 1})["metadata"]}])
def test_a_spec_that_was_read_does_not_make_the_rest_of_the_object_sound(odd: Pod) -> None:
    pods = listed(pod("web"))
    (before,) = pods.to_run
    bad = {**pod("web"), "spec": before["spec"], **odd}
    pods.change("MODIFIED", bad)
    assert pods.to_run == [before] and not pods.complete


def test_another_pod_with_the_name_and_the_spec_of_a_known_one_replaces_it() -> None:
    pods = listed(pod("web"))
    (before,) = pods.to_run
    pods.change("MODIFIED", {**pod("web", uid="other"), "spec": copy.deepcopy(before["spec"])})
    assert uids(pods) == ["other"]
