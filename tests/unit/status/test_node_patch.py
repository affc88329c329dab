"""The patch of the Node's status, and what counts as news in it."""

import copy
from typing import Any

from services.status.core.node_patch import is_newer, metadata_differs, node_patch, reported_changes

OLD: dict[str, Any] = {
    "metadata": {"name": "n1", "uid": "u", "resourceVersion": "9", "labels": {"kubernetes.io/os": "linux"}},
    "spec": {"podCIDR": "10.1.0.0/24"},
    "status": {
        "capacity": {"cpu": "2", "old": "1"},
        "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "t1", "reason": "r"},
            {"type": "NetworkUnavailable", "status": "False"},
        ],
        "addresses": [{"type": "InternalIP", "address": "a"}, {"type": "InternalIP", "address": "b"}],
        "images": [{"sizeBytes": 1}],
    },
}


def changed(**status: Any) -> dict[str, Any]:
    node = copy.deepcopy(OLD)
    node["status"] |= status
    return node


def test_without_a_change_the_patch_has_the_uid_alone() -> None:
    assert node_patch(OLD, copy.deepcopy(OLD)) == {"metadata": {"uid": "u"}}
    assert reported_changes(OLD, copy.deepcopy(OLD)) == {}


def test_the_spec_is_never_in_it() -> None:
    assert node_patch(OLD, {**OLD, "spec": {}}) == {"metadata": {"uid": "u"}}


def test_a_heartbeat_is_in_the_patch_and_is_no_news() -> None:
    conditions = [OLD["status"]["conditions"][0] | {"lastHeartbeatTime": "t2"}, OLD["status"]["conditions"][1]]
    new = changed(conditions=conditions)
    assert node_patch(OLD, new)["status"]["conditions"] == [{"type": "Ready", "lastHeartbeatTime": "t2"}]
    assert reported_changes(OLD, new) == {}


def test_conditions_in_another_order_are_no_news() -> None:
    assert reported_changes(OLD, changed(conditions=OLD["status"]["conditions"][::-1])) == {}


def test_changed_addresses_replace_the_list() -> None:
    addresses = [{"type": "InternalIP", "address": "b"}, {"type": "Hostname", "address": "n1"}]
    status = node_patch(OLD, changed(addresses=addresses))["status"]
    assert status == {"addresses": [*addresses, {"$patch": "replace"}]}


def test_first_addresses_are_the_list_itself() -> None:
    addresses = [{"type": "InternalIP", "address": "a"}, {"type": "InternalIP", "address": "b"}]
    nothing: tuple[dict[str, Any], ...] = ({}, {"addresses": []})
    for none in nothing:
        old = {"metadata": {}, "status": none}
        patch = node_patch(old, {"metadata": {}, "status": {"addresses": addresses}})
        assert patch == {"status": {"addresses": addresses}}


def test_lists_without_a_key_are_replaced_and_vanished_entries_are_null() -> None:
    new = changed(images=[{"sizeBytes": 2}], capacity={"cpu": "4"})
    assert node_patch(OLD, new)["status"] == {"images": [{"sizeBytes": 2}], "capacity": {"cpu": "4", "old": None}}
    assert reported_changes(OLD, new) != {}


def test_only_the_labels_of_os_and_architecture_are_news() -> None:
    new = copy.deepcopy(OLD)
    new["metadata"]["labels"]["team"] = "blue"
    assert reported_changes(OLD, new) == {} and metadata_differs(OLD, new)
    assert node_patch(OLD, new) == {"metadata": {"uid": "u", "labels": {"team": "blue"}}}
    new["metadata"]["labels"]["kubernetes.io/os"] = "plan9"
    assert reported_changes(OLD, new) == {"labels": {"kubernetes.io/os": "plan9"}}


def test_a_later_version_of_the_same_node_is_newer() -> None:
    def version(number: str, uid: str = "u") -> dict[str, Any]:
        return {"metadata": {"uid": uid, "resourceVersion": number}}

    assert is_newer(version("10"), version("9")) and not is_newer(version("9"), version("9"))
    assert not is_newer(version("10", uid="v"), version("9"))
    assert not is_newer(version("abc"), version("9")) and not is_newer({}, version("9"))
